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

**A sign is confirmed** when fresh seeds repeat it: Holm's test shows it with the first half of the
seeds, and the other half shows it alone, at 5 %. After the last look, each point whose sign is not
confirmed doubles its seeds, and the reference gets those that so many contrasts need. This look
adds no sign, so it spends no error. Where points share their noise, a sign needs no fresh seeds if
Holm's test still shows a difference that is smaller by `SURE` times the residual e.

**One more seed as bad as the worst.** Few seeds may all miss a long tail. e is the largest residual
of the study, of any point, that makes the difference smaller. If e exceeds `FAR` usual standard
deviations, the difference is moved towards 0 by e/(n + 1), as one more such seed of its point would
move it.

**Looking.** `spend` gives the α_k. The first plan of looks, a number of seeds or the schedule of
`--until-decided`, has α = 5 %, in proportion to the seeds of each look. A further plan, such as
`--seeds 10` after `--seeds 5`, has half of what is left of a reserve of 1 %. A single look costs
nothing, and all together are below 6 %.

**Allocation.** The reference is in all k contrasts. For a number of runs, their variance is least
if it has √k times the seeds of a point (Dunnett 1955); and only its own seeds show whether it is
noisy, skewed or fails with some seeds. If one seed in five fails, twelve seeds miss it with a
probability of 7 %. So the reference has at least twelve, or 3/8 of the runs of the points if these
are fewer.

**Divergence** is a count, and so is a run that has not solved its task (`counts.py`). Fisher's
exact test compares the shares of these runs. If its p can reach α_k/k, the chain of its contrast
starts with twice the smaller p of the two tests: of the shares, and of the means of the other runs.
Means of less than half of the runs are not compared. A share says worse or better. A point with a
greater share than the reference is not called better or negligible: this alone takes a verdict
back.

    seeds needed   the least m with |δ̂| ≥ (z_{1−α/2k} + z_.8) √Var(n + m)
                                or |δ̂| + (z_{1−α} + z_.8) √Var(n + m) ≤ Δ
                   k: the chains not finished; α: that of the next look

If the estimate is right, m further seeds decide in about four studies of five; the reference has
√k times as many. The part of the variance that is due to tuning remains: if seeds would be enough
with τ = 0 only, the point needs more tuning runs.

Lan and DeMets 1983 (Biometrika 70:659); Bretz et al. 2009 (Stat. Med. 28:586); Schuirmann 1987;
Dunnett 1955 (JASA 50:1096).
"""

import heapq
from collections.abc import Sequence
from math import inf, nan
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmzoo.lab.statistics.contrasts import Contrasts, contrasts, holm
from lmzoo.lab.statistics.counts import counts
from lmzoo.lab.statistics.draws import independent
from lmzoo.lab.statistics.intervals import Array, Indices, Mask, undefined_is_nan
from lmzoo.lab.statistics.noise import members

WORSE = "worse"
WORSE_OPEN = "worse-open"
BETTER = "better"
BETTER_OPEN = "better-open"
NEGLIGIBLE = "negligible"
UNDECIDED = "undecided"
SHOWN = {WORSE_OPEN: "worse (size open)", BETTER_OPEN: "better (size open)"}
"""Verdicts that people read in other words."""
VERDICTS = (BETTER, BETTER_OPEN, NEGLIGIBLE, WORSE_OPEN, WORSE, UNDECIDED)
STATISTICS = 3
"""Version of the verdicts. Raise it when the same losses give other numbers or words."""
MARGIN = 0.02
"""The default margin, in nats."""
ERROR = 0.05
"""α of the first plan of looks."""
RESERVE = 0.01
"""What all further plans may spend."""
POWER = 0.8
MOST_SEEDS = 1000
"""A greater number of seeds counts as none."""
SURE = 2.0
"""A sign is sure if it outlives a shift by so many of the worst residuals of the study."""
SHOWING = 12
"""Seeds of a reference: if one in five fails, they show it with a probability of 93 %."""


class Look(NamedTuple):
    """A time at which verdicts are given."""

    seeds: int
    """n_k."""
    error: float
    """α_k."""
    of_reference: int
    """Seeds of the reference."""


class Compared(NamedTuple):
    """The comparison of P points with the reference; arrays (P,), NaN where nothing is known."""

    verdict: NDArray[np.str_]
    """One of `VERDICTS`; "" for the reference, outside the family and without an interval."""
    sign: Indices
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
    needs_tuning: Mask
    """Whether seeds do not suffice because of τ, the uncertain choice of the setting."""
    confirmed: Mask
    """Whether the sign is sure, or fresh seeds repeat it."""
    noisy: Mask
    """Whether the losses vary much more between seeds than those of the other points."""
    seeds: Indices
    """The number of confirm seeds that each point needs."""
    half_corrected: Array
    """Half of the interval at the level that an undecided point must pass, for all points."""


def looks(start: int, most: int) -> tuple[int, ...]:
    """Return the numbers of seeds at which to look: `start`, doubled until `most`."""
    schedule = [start]
    while schedule[-1] < most:
        # Doubled: few looks, each of which can change something.
        doubled = 2 * schedule[-1]
        schedule.append(min(doubled, most))
    return tuple(schedule)


def reference_seeds(seeds: int, contrasts: int) -> int:
    """Return the seeds of a reference with k contrasts: √k times those of a point, or 12."""
    if seeds < 2:
        return seeds
    points = max(contrasts, 1)
    of_points = seeds * points
    # Twelve seeds show a failure, where they are at most 3/8 of the runs of the points.
    showing = min(SHOWING, round(3 * of_points / 8))
    usual = round(of_points / points**0.5)
    return max(usual, showing)


def spend(
    schedule: Sequence[int],
    made: Sequence[Look] = (),
    contrasts: int = 1,
) -> tuple[Look, ...]:
    """Return the looks made and those of a schedule after them, with the errors to spend."""
    last = 0
    if made:
        last = made[-1].seeds
    later = [seeds for seeds in schedule if seeds > last]
    if not later:
        return tuple(made)
    spent = sum(look.error for look in made)
    left = ERROR - spent
    if left <= 1e-9:  # nothing but the rounding of the sum: the first plan is done
        left = (ERROR + RESERVE - spent) / 2
    span = later[-1] - last
    of_reference = 0
    if made:
        of_reference = max(look.of_reference for look in made)
    planned = list(made)
    for seeds in later:
        of_reference = max(of_reference, reference_seeds(seeds, contrasts))
        share = (seeds - last) / span
        planned.append(Look(seeds, left * share, of_reference))
        last = seeds
    return tuple(planned)


def read_looks(stored: Sequence[object] | None, seeds: int) -> tuple[Look, ...]:
    """Return the looks of a `study.json`; those of earlier versions are a schedule, or none."""
    if stored and all(isinstance(look, Sequence) for look in stored):
        rows = cast("Sequence[tuple[int, float, int]]", stored)
        return tuple(
            Look(int(number), float(error), int(of_reference))
            for number, error, of_reference in rows
        )
    schedule = cast("Sequence[int]", stored or [seeds])
    return spend(list(map(int, schedule)))


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
    """
    table = _Table.read(losses, reference, family, silent, tuning_sd, paired=paired)
    plan = list(looks)
    if not plan:
        width = table.losses.shape[1]
        plan.append(Look(max(width, 1), ERROR, width))
    looked = _all_looks(table, plan, ended, margin)
    state = looked.state
    contrast = looked.contrasts
    verdict = state.words()
    # After the last look of the plan, the next one is that of a further plan.
    further = plan[-1].seeds + 1
    extended = spend([further], plan)
    next_look = extended[looked.number + 1]
    needed, needs_tuning = _needs(contrast, state, margin, next_look.error, verdict)
    least = max(margin, 0.0)
    worse = contrast.tail(least - contrast.mean)
    better = contrast.tail(least + contrast.mean)
    low, high = _interval(contrast, state.sign, verdict, margin)
    last_look = plan[looked.number]
    level = last_look.error / max(state.left, 1)
    return Compared(
        verdict=verdict,
        sign=state.sign,
        mean=contrast.mean,
        low=low,
        high=high,
        p=state.p,
        p_raw=contrast.p,
        worse=worse,
        within=np.maximum(1 - worse - better, 0.0),
        better=better,
        p_diverged=state.p_diverged,
        seeds_needed=needed,
        needs_tuning=needs_tuning,
        confirmed=state.confirmed,
        noisy=contrast.noisy,
        seeds=looked.seeds,
        half_corrected=contrast.half(1 - level),
    )


class _Table(NamedTuple):
    """What is compared: the losses of P points, and which of them take which part."""

    losses: Array
    """(P, S)."""
    reference: Indices
    """The reference of each point, (P,)."""
    tested: Mask
    """The contrasts of the study, (P,)."""
    references: Mask
    """(P,)."""
    sharing: Mask
    """The points that share their noise, (P,)."""
    tuning_sd: ArrayLike
    paired: bool | None

    @staticmethod
    def read(
        losses: ArrayLike,
        reference: int | ArrayLike,
        family: ArrayLike | None,
        silent: ArrayLike,
        tuning_sd: ArrayLike,
        *,
        paired: bool | None,
    ) -> "_Table":
        # Copies of a draw are no seeds of their own.
        distinct = independent(losses)
        points = len(distinct)
        reference_of = np.broadcast_to(reference, points)
        tested = members(family, points)
        tested &= np.arange(points) != reference_of
        references = np.zeros(points, bool)
        if np.ndim(reference):
            references[reference_of[tested]] = True
        else:  # a single one is a reference without contrasts, too
            references[reference_of] = True
        return _Table(
            losses=distinct,
            reference=reference_of,
            tested=tested,
            references=references,
            # A reference tells how noisy the points are, too.
            sharing=tested | references | np.asarray(silent, bool),
            tuning_sd=tuning_sd,
            paired=paired,
        )

    def until(self, seeds: int, of_reference: int) -> "_Table":
        """Return the table of so many seeds of each point, and of each reference."""
        most = np.where(self.references, max(of_reference, seeds), seeds)
        seed = np.arange(self.losses.shape[1])
        # Later seeds, which some points have, do not change an earlier look.
        is_read = seed < most[:, None]
        losses = np.where(is_read, self.losses, nan)
        return self._replace(losses=losses)

    def halves(self, *, paired: bool) -> tuple["_Table", "_Table"]:
        """Return the tables of the first and of the other half of the seeds of each point.

        A reference that is no contrast itself keeps all its seeds.
        """
        known = ~np.isnan(self.losses)
        seeds = known.sum(1, keepdims=True)
        # Of an odd number, the other half is the larger one.
        is_first = 2 * known.cumsum(1) <= seeds
        is_alone = self.references & ~self.tested
        is_whole = is_alone[:, None]
        first = np.where(is_first | is_whole, self.losses, nan)
        other = np.where(is_whole | ~is_first, self.losses, nan)
        # Both halves are paired, or none is, as the whole: few seeds would decide otherwise.
        alike = self._replace(paired=paired)
        return alike._replace(losses=first), alike._replace(losses=other)

    def contrasts(self) -> Contrasts:
        return contrasts(
            self.losses,
            self.reference,
            self.tuning_sd,
            family=self.sharing,
            paired=self.paired,
        )


class _Looked(NamedTuple):
    """What all looks say together."""

    state: "_State"
    seeds: Indices
    """The seeds that the points need, (P,)."""
    number: int
    """The last look of the plan that was made; −1 for none."""
    contrasts: Contrasts
    """Those of the last look."""


def _all_looks(
    table: _Table, plan: Sequence[Look], ended: ArrayLike | None, margin: float
) -> _Looked:
    """Look as often as the runs allow: contrasts, counts, verdicts, confirmation."""
    state = _State(table.tested)
    references = table.references
    seeds = np.full(len(references), plan[0].seeds)
    done = _known_seeds(table.losses)
    if ended is not None:
        done = np.asarray(ended)
    previous = 0
    made = -1
    contrast = None
    last = plan[-1]
    # α = 0: it adds no sign, and spends nothing.
    confirming = Look(2 * last.seeds, 0.0, last.of_reference)
    for number, look in enumerate([*plan, confirming]):
        adds_signs = number < len(plan)
        active = state.unconfirmed
        if adds_signs:
            active = active | state.undecided
        elif not active.any():
            break
        of_reference = look.of_reference
        if not adds_signs:
            contrasts_left = int(active.sum())
            deserved = reference_seeds(look.seeds, contrasts_left)
            of_reference = max(of_reference, deserved)
        has_new_seeds = (done > previous) & ~references
        if active.any() or not previous or ended is None:
            seeds[active] = look.seeds
            # The reference needs as many seeds as a point at least.
            least = max(of_reference, look.seeds)
            seeds[references] = np.maximum(seeds[references], least)
            needing = active | references
        else:
            # Nothing is left to decide: added seeds make the estimates better.
            needing = has_new_seeds
        wanted = np.where(references, seeds, look.seeds)
        missing = done < wanted
        if ended is not None and missing[needing].any():
            break  # the look waits for these runs
        if previous and not has_new_seeds.any():
            break  # further seeds of the reference alone make no look
        # As if the sweep had ended here, so that no order of execution matters.
        known = table.until(look.seeds, of_reference)
        contrast = known.contrasts()
        state.read_counts(known, contrast)
        if adds_signs:
            state.look(contrast, look.error, margin)
            made = number
        state.confirm(known, contrast)
        previous = look.seeds
    if contrast is None:  # no look yet
        contrast = table.until(0, 0).contrasts()
    return _Looked(state, seeds, made, contrast)


def _known_seeds(losses: Array) -> Indices:
    """Return the last seed of each point that has a result, counted from 1, (P,)."""
    numbers = np.arange(1, losses.shape[1] + 1)
    known = np.where(np.isnan(losses), 0, numbers)
    return known.max(1, initial=0)


def _interval(
    contrast: Contrasts, sign: Indices, verdict: NDArray[np.str_], margin: float
) -> tuple[Array, Array]:
    """Return the interval of the last look, cut to what is shown if the mean says it, too.

    Counts of diverged runs, and earlier looks, may show what the mean does not say.
    """
    mean = contrast.mean
    # Otherwise the interval and the word would contradict each other.
    agrees = sign * mean > 0
    exceeds = np.abs(mean) > margin
    is_within = (verdict == NEGLIGIBLE) & ~exceeds
    is_far = agrees & exceeds
    above = np.where(agrees & (sign > 0), 0.0, -inf)
    above[is_far & (verdict == WORSE)] = margin
    above[is_within] = np.maximum(above, -margin)[is_within]
    below = np.where(agrees & (sign < 0), 0.0, inf)
    below[is_far & (verdict == BETTER)] = -margin
    below[is_within] = np.minimum(below, margin)[is_within]
    # 95 %, also where α_k is less: the verdict has its own test.
    half = contrast.half(1 - ERROR)
    low = np.maximum(mean - half, above)
    high = np.minimum(mean + half, below)
    return low, high


class _State:
    """What the looks so far have shown; further seeds withdraw nothing of it."""

    def __init__(self, tested: Mask):
        points = len(tested)
        no_runs = np.zeros((points, 0))
        self._tested = tested
        self._sign = np.zeros(points, np.int64)
        self._exceeds = np.zeros(points, bool)
        self._negligible = np.zeros(points, bool)
        self._confirmed = np.zeros(points, bool)
        self.counts = counts(no_runs, np.arange(points))
        """Of the last look."""
        self._p = np.full(points, nan)
        self._known = np.zeros(points, bool)
        self.p_diverged = np.full(points, nan)
        self.left = 0
        """Chains that are not finished."""

    @property
    def sign(self) -> Indices:
        has_more = self.counts.more > 0
        return np.where(has_more & (self._sign < 0), 0, self._sign)

    @property
    def negligible(self) -> Mask:
        return self._negligible & (self.counts.more <= 0)

    @property
    def p(self) -> Array:
        return np.where(self.sign != self._sign, 1.0, self._p)

    @property
    def undecided(self) -> Mask:
        return self._tested & (self.sign == 0) & ~self.negligible

    @property
    def confirmed(self) -> Mask:
        return self._confirmed & (self.sign != 0)

    @property
    def unconfirmed(self) -> Mask:
        """Points with a sign that fresh seeds have not repeated; the size of it is not small."""
        return (self.sign != 0) & ~self._confirmed & ~self.negligible

    def words(self) -> NDArray[np.str_]:
        up = self.sign > 0
        down = self.sign < 0
        # The first case that holds gives the word.
        words = {
            WORSE: self._exceeds & up,
            BETTER: self._exceeds & down,
            NEGLIGIBLE: self.negligible,
            WORSE_OPEN: up,
            BETTER_OPEN: down,
            UNDECIDED: self._known,
        }
        return np.select(list(words.values()), list(words), "")

    def read_counts(self, known: _Table, contrast: Contrasts):
        """Read the diverged runs of a look."""
        has_diverged = np.isposinf(known.losses).any(1)
        self.counts = counts(known.losses, known.reference)
        has_counts = has_diverged | (self.counts.more != 0)
        self.p_diverged = np.where(has_counts, self.counts.p, nan)
        has_numbers = ~np.isnan(contrast.error) | has_counts
        self._known |= self._tested & has_numbers

    def look(self, contrast: Contrasts, error: float, margin: float):
        """Add a look with the error α_k."""
        has_means = self._tested & ~self.counts.few
        p_mean = np.where(has_means, contrast.p, nan)
        # A test that was not made rejects nothing, but counts in the family.
        p_mean[self._tested & self.counts.few] = 1.0
        beyond_margin = contrast.cautious_size - max(margin, 0.0)
        two_sided = 2 * contrast.tail(beyond_margin)
        p_margin = np.fmax(two_sided, p_mean)
        family = max(self._known.sum(), 1)
        # A count that could not reject among all contrasts is no test.
        can_reject = self._known & (self.counts.least <= error / family)
        p_count = np.where(can_reject, self.counts.p, nan)
        # True also where the means were not compared: p_mean is NaN.
        by_count = can_reject & ~(p_mean <= p_count)
        has_both = can_reject & ~self.counts.few & ~np.isnan(p_mean)
        # Two tests of one contrast: twice the smaller p.
        tests = np.where(has_both, 2, 1)
        p_zero = tests * np.fmin(p_mean, p_count)
        p_margin = np.where(by_count, nan, tests * p_margin)
        shown = self._sign != 0
        # One family: all contrasts, and both hypotheses of each.
        adjusted_zero, adjusted_margin = self._chains(shown, p_zero, p_margin)

        size = np.where(by_count, self.counts.more, contrast.mean)
        direction = np.nan_to_num(np.sign(size)).astype(np.int64)
        # A point with more diverged runs is not called better.
        is_barred = (self.counts.more > 0) & (direction < 0)
        adjusted_zero[is_barred] = nan
        # The smallest of all looks, in the unit of α.
        in_unit = adjusted_zero * ERROR / error
        self._p = np.fmin(self._p, np.minimum(in_unit, 1.0))
        is_new = (adjusted_zero < error) & ~(by_count & self.negligible)
        self._sign = np.where(is_new, direction, self._sign)
        is_new_by_count = is_new & by_count
        self._exceeds |= is_new_by_count  # a share has no size that could be small
        self._confirmed |= is_new_by_count  # an exact test needs no shape of the noise

        distance = np.abs(contrast.mean)
        agrees = (self._sign == direction) & (direction != 0)
        is_further = agrees & (distance > margin) & ~self._negligible
        self._exceeds |= is_further & (adjusted_margin < error)
        is_within = contrast.tail(margin - distance) < error
        # Two one-sided tests of a point, without the family (Schuirmann).
        is_small = has_means & is_within & (margin > 0)
        has_fewer = self.counts.more <= 0
        self._negligible |= is_small & has_fewer & ~self._exceeds

    def _chains(self, shown: Mask, p_zero: Array, p_margin: Array) -> tuple[Array, Array]:
        """Return the adjusted p-values of δ = 0 and of |δ| ≤ Δ; NaN where nothing is left."""
        # A chain starts with what is not shown yet.
        first = np.where(shown, p_margin, p_zero)
        first[self._exceeds] = nan
        second = np.where(shown, nan, p_margin)
        of_first, of_second = _adjusted(first, second)
        is_left = ~np.isnan(first)
        # The next seeds are planned for the level that is left.
        self.left = int(is_left.sum())
        of_zero = np.where(shown, nan, of_first)
        of_margin = np.where(shown, of_first, of_second)
        return of_zero, of_margin

    def confirm(self, known: _Table, contrast: Contrasts):
        """Confirm the signs that are sure, and those that the halves of the seeds show."""
        if not self.unconfirmed.any():
            return
        is_sure = contrast.error == 0  # exact differences
        if contrast.usual > 0:
            shifted = np.abs(contrast.mean) - SURE * contrast.worst
            is_sure |= self._says(contrast, shifted)
        self._confirmed |= is_sure
        if not self.unconfirmed.any():
            return
        first_half, other_half = known.halves(paired=contrast.paired)
        first = first_half.contrasts()
        other = other_half.contrasts()
        with undefined_is_nan():
            repeats = 2 * other.tail(other.cautious_size) < ERROR
            repeats &= other.mean * self._sign > 0
        self._confirmed |= repeats & self._says(first, first.cautious_size)

    def _says(self, contrast: Contrasts, size: Array) -> Mask:
        """Return which signs Holm's test shows, too, for differences of these sizes."""
        # Two-sided, as the test that gave the sign.
        p_value = 2 * contrast.tail(np.maximum(size, 0.0))
        adjusted = holm(np.where(self._tested, p_value, nan))
        agrees = contrast.mean * self._sign > 0
        return (adjusted < ERROR) & agrees


def _adjusted(first: Array, second: Array) -> tuple[Array, Array]:
    """Return the adjusted p-values of the graph of chains, (P,) each.

    A chain of p-values first -> second gives its share to the others when both are rejected. NaN is
    no hypothesis.
    """
    heap = list[tuple[float, int, int]]()
    for point in np.flatnonzero(~np.isnan(first)).tolist():
        heapq.heappush(heap, (first[point], 0, point))
    left = len(heap)
    level = 0.0
    adjusted = np.full((2, len(first)), nan)
    while heap:
        p, stage, point = heapq.heappop(heap)
        own_level = min(1.0, p * left)
        # Later hypotheses are rejected after this one, so their level is not lower.
        level = max(level, own_level)
        adjusted[stage, point] = level
        after = second[point]
        if stage == 0 and not np.isnan(after):
            heapq.heappush(heap, (after, 1, point))
        else:
            left -= 1
    return adjusted[0], adjusted[1]


def _needs(
    contrast: Contrasts,
    state: "_State",
    margin: float,
    error: float,
    verdict: NDArray[np.str_],
) -> tuple[Array, Mask]:
    """Return the further seeds that undecided points need, and which need more tuning."""
    # Normal quantiles: the number of seeds is rounded anyway.
    z_power = float(special.ndtri(POWER))
    of_chain = error / 2 / max(state.left, 1)
    z_apart = z_power - float(special.ndtri(of_chain))
    z_within = z_power - float(special.ndtri(error))
    further = np.arange(1, MOST_SEEDS + 1)

    # A point that fails more often than the reference is not called negligible or better.
    fails_more = state.counts.more > 0
    own_margin = np.where(fails_more, 0.0, margin)[:, None]

    def least_seeds(
        size: Array, noise: Array, tuning: Array | float, margin: Array | float
    ) -> Array:
        size = size[:, None]
        with undefined_is_nan():
            # Where the reference grows alike, the variance falls as 1/n.
            seeds = contrast.seeds[:, None] + further
            of_tuning = np.reshape(tuning, (-1, 1))
            sd = np.sqrt(noise[:, None] / seeds + of_tuning)
            is_apart = (size > 0) & (size >= z_apart * sd)
            is_within = size + z_within * sd <= margin
        enough = is_apart | (is_within & (np.asarray(margin) > 0))
        known = (verdict == UNDECIDED) & enough.any(1)
        first = further[enough.argmax(1)]
        return np.where(known, first, nan)

    is_barred = fails_more & (contrast.mean < 0)
    size = np.where(is_barred, 0.0, np.abs(contrast.mean))
    more = np.abs(state.counts.more)
    of_counts = least_seeds(more, state.counts.noise, 0.0, 0.0)
    of_means = least_seeds(size, contrast.noise, contrast.tuning, own_margin)
    needed = np.fmin(of_means, of_counts)
    if_tuned = least_seeds(size, contrast.noise, 0.0, own_margin)
    # If this is enough, seeds are not what is missing.
    is_enough = ~np.isnan(if_tuned)
    return needed, is_enough & np.isnan(needed)
