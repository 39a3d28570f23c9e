r"""The verdicts of a study: losses, family, tuning, looks and margin -> words and numbers.

Every table, figure, screen and planner takes its verdicts from `compared`.

    undecided      nothing below is shown
    worse-open     δ > 0 is shown; whether it exceeds the margin Δ is open
    worse          δ > Δ is shown
    negligible     |δ| < Δ is shown; `sign` says on which side of 0, if that is shown
    better-open, better    the same below 0

**A verdict never turns back** when seeds are added. A study looks at n_1 < n_2 < ... seeds, and
look k may be wrong with probability α_k. A hypothesis that was rejected at some look stays
rejected. So the words move along undecided -> worse-open -> worse or negligible, and a shown sign
stays, whatever the later seeds are. By the union bound the error over all looks is at most Σ α_k,
under any dependence and any rule that ends a contrast. Other data than further seeds are another
study: missing runs of a look that are trained later, or added points, can take a word away.

    error of the table    at look k, each contrast has the chain δ = 0, then |δ| ≤ Δ. The next
                          hypothesis of a chain is rejected if p ≤ α_k / (chains not finished),
                          until none is (Holm; a graph of Bretz et al. 2009). All words with a sign
                          are right with probability 1 − Σ α_k, for the whole family
    error of a point      two one-sided tests at α_k for negligible
    p                     min_k of the chain's p · α / α_k: p < α says that the sign is shown
    interval              95 % of the last look, cut at 0 or ±Δ to what word and mean say

**Looking.** `spend` gives the α_k. The first plan of looks, a number of seeds or the schedule of
`--until-decided`, has α = 5 %, in proportion to the seeds of each look. A further plan, such as
`--seeds 10` after `--seeds 5`, has half of what is left of a reserve of 1 %. A single look costs
nothing, and all together are below 6 %.

**Allocation.** The reference is in all k contrasts. For a number of runs, their variance is least
if it has √k times the seeds of a point (Dunnett 1955); and only its own seeds show whether it is
noisy, skewed or fails with some seeds. Twelve seeds miss that one in five fails with 7 %: so many
it has where this is at most 3/8 of the runs of the points.

**Nearest.** With `nearest` = m, only the m undecided points that need the fewest seeds get those of
the next look; the reference gets what m contrasts deserve. The errors are those of all contrasts,
whatever is trained: a test that is not made rejects nothing.

**Divergence** is a count. Fisher's exact test, one-sided, compares the numbers of diverged runs
with the reference's; it is one more hypothesis of the table, if its counts could reject at all
(Tarone 1990). It says worse or better; the means are of the other runs, and no diverged run enters
a mean. A point with more diverged runs than the reference is not called better or negligible: this
alone takes a verdict back.

    seeds needed   the least m with |δ̂| ≥ (z_{1−α/2k} + z_.8) √Var(n + m)
                                or |δ̂| + (z_{1−α} + z_.8) √Var(n + m) ≤ Δ
                   k: the chains not finished; α: that of the next look

If the estimate is right, m further seeds decide in about four studies of five; the reference has
√k times as many. The part of the variance that is due to tuning remains: if seeds would be enough
with τ = 0 only, the point needs more tuning runs. Where a verdict assumes more than the point's own
seeds show, `shared` is true.

Lan and DeMets 1983 (Biometrika 70:659); Bretz et al. 2009 (Stat. Med. 28:586); Schuirmann 1987;
Tarone 1990 (Biometrics 46:515); Dunnett 1955 (JASA 50:1096).
"""

import heapq
from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmzoo.lab.statistics.contrasts import Contrasts, contrasts
from lmzoo.lab.statistics.intervals import Array, mean_and_error

WORSE, WORSE_OPEN, BETTER, BETTER_OPEN = "worse", "worse-open", "better", "better-open"
NEGLIGIBLE, UNDECIDED = "negligible", "undecided"
SHOWN = {WORSE_OPEN: "worse (size open)", BETTER_OPEN: "better (size open)"}
"""Verdicts that people read in other words."""
VERDICTS = (BETTER, BETTER_OPEN, NEGLIGIBLE, WORSE_OPEN, WORSE, UNDECIDED)
STATISTICS = 1
"""Version of the verdicts. Raise it when the same losses give other numbers or words."""
MARGIN = 0.02
"""The default margin, in nats."""
ERROR, RESERVE = 0.05, 0.01
POWER = 0.8
MOST_SEEDS = 1000
"""A greater number of seeds counts as none."""
FEW_SEEDS = 3
"""Up to this number of seeds, a verdict that the point's own seeds do not show is marked."""
SHOWING = 12
"""Seeds of a reference of which one in five fails that show a failure with 93 %."""

_Indices = NDArray[np.int64]
"""The reference, or that of each point."""


class Look(NamedTuple):
    """A time at which verdicts are given."""

    seeds: int
    """n_k."""
    error: float
    """α_k."""
    own: int
    """Seeds of the reference."""


class Compared(NamedTuple):
    """The comparison of P points with the reference; arrays (P,), NaN where nothing is known."""

    verdict: NDArray[np.str_]
    """One of `VERDICTS`; "" for the reference, outside the family and without an interval."""
    sign: NDArray[np.int64]
    """+1 if the point is shown to be worse, −1 if better, else 0."""
    mean: Array
    low: Array
    high: Array
    p: Array
    """After the correction for the family and the looks; NaN outside the family."""
    p_raw: Array
    """Of this contrast at the last look alone."""
    worse: Array
    """P(δ > Δ) under a flat prior."""
    within: Array
    better: Array
    """P(δ < −Δ)."""
    p_diverged: Array
    """Of as many diverged runs more, or fewer, than the reference; NaN without any."""
    seeds_needed: Array
    """Further seeds of an undecided point; NaN if it is decided or seeds do not suffice."""
    needs_tuning: NDArray[np.bool_]
    """Whether seeds do not suffice because of τ, the uncertain choice of the setting."""
    shared: NDArray[np.bool_]
    """Whether a verdict of few seeds rests on the noise of the other points."""
    noisy: NDArray[np.bool_]
    """Whether the losses vary much more between seeds than those of the other points."""
    seeds: NDArray[np.int64]
    """The number of confirm seeds that each point needs."""
    half_corrected: Array
    """Half of the interval at the level that an undecided point must pass, for all points."""


def looks(start: int, most: int) -> tuple[int, ...]:
    """Return the numbers of seeds at which to look: `start`, doubled until `most`."""
    schedule = [start]
    while schedule[-1] < most:
        schedule.append(min(2 * schedule[-1], most))
    return tuple(schedule)


def reference_seeds(seeds: int, contrasts: int) -> int:
    """Return the seeds of a reference with k contrasts: √k times those of a point, or 12."""
    if seeds < 2:
        return seeds
    of_points = seeds * max(contrasts, 1)
    return max(round(of_points / max(contrasts, 1) ** 0.5), min(SHOWING, round(3 * of_points / 8)))


def spend(
    schedule: Sequence[int], made: Sequence[Look] = (), contrasts: int = 1, nearest: int = 0
) -> tuple[Look, ...]:
    """Return the looks made and those of a schedule after them, with the errors to spend.

    After the first look of a study, at most `nearest` contrasts get seeds; 0: all.
    """
    done = made[-1].seeds if made else 0
    later = [n for n in schedule if n > done]
    if not later:
        return tuple(made)
    spent = sum(look.error for look in made)
    left = ERROR - spent if spent < ERROR - 1e-9 else (ERROR + RESERVE - spent) / 2
    found, span = list(made), later[-1] - done
    for n, m in zip(later, (done, *later[:-1]), strict=True):
        k = min(nearest or contrasts, contrasts) if found else contrasts
        own = max(reference_seeds(n, k), found[-1].own if found else 0)
        found.append(Look(n, left * ((n - m) / span), own))
    return tuple(found)


def read_looks(stored: Sequence[object] | None, seeds: int) -> tuple[Look, ...]:
    """Return the looks of a `study.json`; those of earlier versions are a schedule, or none."""
    if stored and all(isinstance(look, Sequence) for look in stored):
        return tuple(Look(int(n), float(error), int(own)) for n, error, own in stored)  # type: ignore[misc]
    return spend([int(n) for n in stored or [seeds]])  # type: ignore[call-overload]


def compared(
    losses: ArrayLike,
    reference: int | ArrayLike,
    *,
    family: ArrayLike | None = None,
    silent: ArrayLike = False,
    tuning_sd: ArrayLike = 0.0,
    looks: Sequence[Look] = (),
    margin: float = MARGIN,
    ended: ArrayLike | None = None,
    paired: bool | None = None,
    nearest: int = 0,
) -> Compared:
    """Return the comparison of all points with the reference.

    Args:
        losses: (P, S) in nats, confirm seeds in their order; infinity for a run that diverged, NaN
            for one that failed or has not ended.
        reference: index of the reference, or of that of each point, int (P,); a point that is its
            own reference is not compared.
        family: the contrasts of the study, bool (P,); None: all. The other points have numbers
            and no verdict, and change no other row.
        silent: points outside the family that share the noise of those inside, bool (P,).
        tuning_sd: standard deviation in nats of the loss over repetitions of the tuning, (P,).
        looks: `spend(schedule)`; (): one look at all seeds.
        margin: Δ in nats; 0 or less: nothing is negligible.
        ended: number of the point's first runs that have ended, int (P,): a look that waits for
            runs decides nothing. None: each look takes the runs that there are.
        paired: whether the effects of the seeds, the columns, are removed; None: if it pays.
        nearest: how many undecided points get the seeds of a further look; 0: all.
    """
    x = np.asarray(losses, np.float64)
    asked = np.ones(len(x), bool) if family is None else np.array(family, bool)
    to = np.asarray(reference)
    asked &= np.arange(len(x)) != to
    references = np.zeros(len(x), bool)
    references[to if to.ndim == 0 else to[asked]] = True
    sharing = asked | references | np.asarray(silent, bool)
    schedule = [*looks] or [Look(max(x.shape[1], 1), ERROR, x.shape[1])]
    done = np.where(np.isnan(x), 0, np.arange(1, x.shape[1] + 1)).max(1, initial=0)
    waits = ended is not None
    done = np.asarray(ended) if waits else done
    state = _State(len(x), asked)
    seeds = np.full(len(x), schedule[0].seeds)
    columns = np.arange(x.shape[1])
    previous, latest = 0, None
    for k, (n, error, own) in enumerate(schedule):
        active = asked & ~state.decided
        if nearest and latest:
            needed, _ = _needs(latest[0], margin, error, state.left, state.words())
            order = np.lexsort((latest[0].p, needed, ~active))
            active[order[nearest:]] = False
        grown = (done > previous) & ~references
        if active.any() or not previous or not waits:
            seeds[active], seeds[references] = n, np.maximum(seeds[references], max(own, n))
            needing = active | references
        else:  # nothing is left to decide: seeds that were added make the estimates better
            needing = grown
        if waits and (done[needing] < np.where(references, seeds, n)[needing]).any():
            break
        if previous and not grown.any():
            break
        most = np.where(references, max(own, n), n)
        known = np.where(columns < most[:, None], x, np.nan)
        c = contrasts(known, to, tuning_sd, family=sharing, paired=paired)
        state.look(c, known, to, error, margin)
        previous, latest = n, (c, known, k)
    none = np.full_like(x, np.nan)
    c, known, k = latest or (contrasts(none, to), none, -1)  # no look yet
    rest = schedule[k + 1 :]
    error = rest[0].error if rest else spend([schedule[-1].seeds + 1], schedule)[-1].error
    sign, verdict = state.sign, state.words()
    needed, needs_tuning = _needs(c, margin, error, state.left, verdict)
    least = max(margin, 0.0)
    worse, better = c.tail(least - c.mean), c.tail(least + c.mean)
    low, high = _interval(c, sign, verdict, margin)
    within, shared = np.maximum(1 - worse - better, 0.0), _shared(c, known, to, verdict, margin)
    return Compared(
        verdict, sign, c.mean, low, high, state.p, c.p, worse, within, better, state.p_diverged,
        needed, needs_tuning, shared, c.noisy, seeds,
        c.half(1 - schedule[k].error / max(state.left, 1)),
    )  # fmt: skip


def _interval(
    c: Contrasts, sign: NDArray[np.int64], verdict: NDArray[np.str_], margin: float
) -> tuple[Array, Array]:
    """Return the interval of the last look, cut to what is shown if the mean says it, too.

    Counts of diverged runs, and earlier looks, may show what the mean does not say.
    """
    half, known = c.half(1 - ERROR), sign * c.mean > 0
    above = np.where(known & (sign > 0), 0.0, -np.inf)
    below = np.where(known & (sign < 0), 0.0, np.inf)
    within, beyond = verdict == NEGLIGIBLE, np.abs(c.mean) > margin
    above = np.where((verdict == WORSE) & known & beyond, margin, above)
    below = np.where((verdict == BETTER) & known & beyond, -margin, below)
    above = np.where(within & ~beyond, np.maximum(above, -margin), above)
    below = np.where(within & ~beyond, np.minimum(below, margin), below)
    return np.maximum(c.mean - half, above), np.minimum(c.mean + half, below)


class _State:
    """What the looks so far have shown; further seeds withdraw nothing of it."""

    def __init__(self, P: int, asked: NDArray[np.bool_]) -> None:
        self.asked = asked
        self._sign = np.zeros(P, np.int64)
        self._exceeds, self._negligible = np.zeros(P, bool), np.zeros(P, bool)
        self._more = np.zeros(P, bool)
        """Points that diverge more often than the reference, at the last look."""
        self._p = np.full(P, np.nan)
        self.known = np.zeros(P, bool)
        self.p_diverged = np.full(P, np.nan)
        self.left = 0
        """Chains that are not finished."""

    @property
    def sign(self) -> NDArray[np.int64]:
        return np.where(self._more & (self._sign < 0), 0, self._sign)

    @property
    def negligible(self) -> NDArray[np.bool_]:
        return self._negligible & ~self._more

    @property
    def p(self) -> Array:
        return np.where(self.sign != self._sign, 1.0, self._p)

    @property
    def decided(self) -> NDArray[np.bool_]:
        return (self.sign != 0) | self.negligible

    def words(self) -> NDArray[np.str_]:
        up, down = self.sign > 0, self.sign < 0
        cases = [self._exceeds & up, self._exceeds & down, self.negligible, up, down, self.known]
        words = [WORSE, BETTER, NEGLIGIBLE, WORSE_OPEN, BETTER_OPEN, UNDECIDED]
        return np.select(cases, words, "")

    def look(self, c: Contrasts, x: Array, to: _Indices, error: float, margin: float) -> None:
        """Add a look at the losses x (P, S) and their contrasts, with the error α_k."""
        more, p_more, least = _divergence(x, to)
        self._more = more > 0
        self.p_diverged = np.where(np.isposinf(x).any(1) | (more != 0), p_more.min(0), np.nan)
        self.known |= self.asked & (~np.isnan(c.error) | np.isposinf(x).any(1))
        size = np.abs(c.mean)
        p_zero = np.where(self.asked, 2 * c.tail(size), np.nan)
        p_margin = np.fmax(2 * c.tail(size - max(margin, 0.0)), p_zero)
        # A chain starts with what is not shown yet.
        shown = self._sign != 0
        first = np.where(shown, p_margin, p_zero)
        first[self._exceeds] = np.nan
        second = np.where(shown, np.nan, p_margin)
        counts = np.where(_could_reject(least, self.asked, error), p_more, np.nan)
        zero, beyond, of_counts = _adjusted(first, second, counts)
        self.left = int((~np.isnan(first)).sum())
        zero, beyond = np.where(shown, np.nan, zero), np.where(shown, zero, beyond)
        self._p = np.fmin(self._p, np.minimum(zero * ERROR / error, 1.0))
        direction = np.nan_to_num(np.sign(c.mean)).astype(np.int64)
        new = ~shown & ~(self._more & (direction < 0)) & (zero < error)
        self._sign = np.where(new, direction, self._sign)
        further = (self._sign == direction) & (direction != 0) & (size > margin)
        self._exceeds |= further & (beyond < error) & ~self._negligible
        within = (c.tail(margin - size) < error) & (margin > 0) & (more <= 0)
        self._negligible |= self.asked & within & ~self._exceeds
        for side, by_count in zip((1, -1), of_counts, strict=True):
            new = (by_count < error) & ~self.decided
            self._sign[new], self._exceeds[new] = side, True


def _adjusted(first: Array, second: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Return the adjusted p-values of the graph of chains, in the shapes of the arguments.

    A chain of p-values first -> second gives its share to the others when both are rejected.
    `counts` (2, P) are chains of one p-value. NaN is no hypothesis.
    """
    heap = [(p, 0, i) for i, p in enumerate(first) if not np.isnan(p)]
    heap += [(p, 2, i) for i, p in enumerate(counts.ravel()) if not np.isnan(p)]
    heapq.heapify(heap)
    left, level = len(heap), 0.0
    found = [np.full(a.size, np.nan) for a in (first, second, counts)]
    while heap:
        p, stage, i = heapq.heappop(heap)
        level = max(level, min(1.0, p * left))
        found[stage][i] = level
        if stage == 0 and not np.isnan(second[i]):
            heapq.heappush(heap, (second[i], 1, i))
        else:
            left -= 1
    return found[0], found[1], found[2].reshape(counts.shape)


def _divergence(x: Array, to: _Indices) -> tuple[Array, Array, Array]:
    """Return by how much more often points diverge than the reference (P,), and exact tests.

    The tests, (2, P), are Fisher's one-sided p of more and of fewer diverged runs, and the least p
    that any division of as many diverged runs has.
    """
    diverged, runs = np.isposinf(x).sum(1), (~np.isnan(x)).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        more = np.nan_to_num(diverged / runs - diverged[to] / runs[to])
    p, least = np.ones((2, 2, len(x)))
    for i, r in enumerate(np.broadcast_to(to, len(x))):
        if i == r or not diverged[i] + diverged[r]:
            continue
        a, b = (int(diverged[i]), int(runs[i])), (int(diverged[r]), int(runs[r]))
        for side, (own, other) in enumerate(((a, b), (b, a))):
            total = own[0] + other[0]
            p[side, i] = _fisher(own[0], total, own[1], other[1])
            least[side, i] = _fisher(min(total, own[1]), total, own[1], other[1])
    return more, p, least


def _fisher(own: int, total: int, n: int, m: int) -> float:
    """Return P(X ≥ own), X of `total` diverged runs are among the n, the others among m runs."""
    ways = sum(comb(n, k) * comb(m, total - k) for k in range(own, min(total, n) + 1))
    return ways / comb(n + m, total)


def _could_reject(least: Array, asked: NDArray[np.bool_], error: float) -> NDArray[np.bool_]:
    """Return which tests could reject at α/k, where k is their number (Tarone)."""
    possible = least < np.where(asked, error, 0.0)
    k = 1
    while (least[possible] <= error / k).sum() > k:
        k += 1
    return possible & (least <= error / k)


def _shared(
    c: Contrasts, x: Array, to: _Indices, verdict: NDArray[np.str_], margin: float
) -> NDArray[np.bool_]:
    """Return which verdicts of few seeds the point's and the reference's own seeds do not show."""
    n, mean, error = mean_and_error(np.where(np.isfinite(x), x, np.nan))
    of_point, of_reference = error**2, (error**2)[to]
    size = np.abs(mean - mean[to])
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = of_point + of_reference
        freedom = variance**2 / (of_point**2 / (n - 1) + of_reference**2 / (n[to] - 1))
        size = np.where(verdict == NEGLIGIBLE, margin - size, size)
        p = special.stdtr(freedom, -size / np.sqrt(variance))
        p = p * np.where(verdict == NEGLIGIBLE, 1, 2)
    few = (n > 1) & (n <= FEW_SEEDS) & (variance > 0) & (not c.paired)
    return few & ~np.isin(verdict, ["", UNDECIDED]) & ~(p < ERROR)


def _needs(
    c: Contrasts, margin: float, error: float, left: int, verdict: NDArray[np.str_]
) -> tuple[Array, NDArray[np.bool_]]:
    """Return the further seeds that undecided points need, and which need more tuning."""
    further, z = np.arange(1, MOST_SEEDS + 1), float(special.ndtri(POWER))
    apart = -float(special.ndtri(error / 2 / max(left, 1))) + z
    within = -float(special.ndtri(error)) + z
    size, found = np.abs(c.mean)[:, None], []
    for tuning in (c.tuning, np.zeros_like(c.tuning)):
        with np.errstate(invalid="ignore", divide="ignore"):
            after = np.sqrt(c.noise[:, None] / (c.seeds[:, None] + further) + tuning[:, None])
            enough = (size > 0) & (size >= apart * after)
            enough |= (margin > 0) & (size + within * after <= margin)
        known = (verdict == UNDECIDED) & enough.any(1)
        found.append(np.where(known, further[enough.argmax(1)], np.nan))
    return found[0], np.isnan(found[0]) & ~np.isnan(found[1])
