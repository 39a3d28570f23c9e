"""Read the histories of runs: the row of each that counts, its gaps and its continuations."""

import math
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.directions import better
from lmzoo.lab.judging.texts import SHOWN, some

if TYPE_CHECKING:
    from lmzoo.lab.judging.account import Question


@dataclass
class Read:
    """A row of results, as it is read."""

    row: int
    table: str | None
    variant: str | None
    key: str | None
    """The seed, or what else tells the runs of a variant apart."""
    name: str | None
    why: str
    """Why it does not count, or ""."""
    value: float | None = None
    best: float | None = None
    """The value by which the best row of a run is chosen."""
    step: float | None = None

    @property
    def run(self) -> tuple[str | None, ...]:
        """What tells its run from others."""
        return self.table, self.variant, self.key

    @property
    def is_known(self) -> bool:
        """Whether it may count, and has a value."""
        return not self.why and self.value is not None

    @property
    def at(self) -> float:
        """Its step; 0 in results without steps."""
        return self.step or 0.0


Runs = MutableMapping[tuple[Any, ...], list[Read]]


def leave_gaps(runs: Runs) -> Iterator[str]:
    """Take NaN for an empty cell where each run has it, or has numbers after it; say so."""
    rows = [[read for read in own if read.is_known] for own in runs.values()]
    rows = [own for own in rows if any(math.isfinite(r.value or 0) for r in own)]
    gaps = [[r for r in own if math.isnan(r.value or 0)] for own in rows]
    pairs = [(own, nans) for own, nans in zip(rows, gaps, strict=True) if nans]
    ended = [
        min(r.at for r in nans) < max(r.at for r in own if math.isfinite(r.value or 0))
        for own, nans in pairs
    ]
    if not pairs or not (all(gaps) or all(ended)):
        return
    for read in (read for nans in gaps for read in nans):
        read.value = None
    yield "NaN is read as an empty cell: each run has it, or has numbers after it"


def continue_runs(runs: Runs, *, with_seeds: bool) -> Iterator[str]:
    """Make a run that begins where another of its variant (and seed) ends a part of it; say so."""
    spans: dict[tuple[Any, ...], list[Read]] = {}
    for own in runs.values():
        for read in (read for read in own if read.is_known):
            spans.setdefault((*read.run, read.name), []).append(read)
    whole: list[list[Read]] = []
    for own in sorted(spans.values(), key=lambda own: min(r.at for r in own)):
        first = min(r.at for r in own)
        for other in whole:
            start = min(r.at for r in other)
            end = max(r.at for r in other)
            stride = (end - start) / max(1, len({r.at for r in other}) - 1) or 1
            is_one = own[0].run[: 3 if with_seeds else 2] == other[0].run[: 3 if with_seeds else 2]
            if is_one and end < first <= end + 1.5 * stride:
                part, name = (one[0].name or one[0].key for one in (own, other))
                yield f"{part} continues {name} ({start:g} to {end:g}, {first:g} on): one run"
                runs[other[0].run] += runs.pop(own[0].run) if own[0].run != other[0].run else []
                for read in own:
                    read.key = other[0].key
                    read.name = other[0].name
                other += own
                break
        else:
            whole.append(own)


def counted_reads(
    runs: Runs, q: "Question", words: tuple[str, str, str], notes: list[str]
) -> list[Read]:
    """Return the row of each run that counts: its last one with a value, or its best one.

    `words` are what tells runs apart, what orders their rows, and a column that could. A
    `UserError` names two rows of one run.
    """
    key, at, hint = words

    def shown(read: Read) -> str:
        return f"variant {read.variant!r}, {key} {read.key}"

    known = [[read for read in own if read.is_known] for own in runs.values()]
    for own in known:
        first, *others = dict.fromkeys(read.name for read in own) or [None]
        if others:
            raise UserError(
                f"two runs have {shown(own[0])}: {first!r} and {others[0]!r}; keep one of them, or "
                "tell them apart with more --by or another --seed"
            )
    several = [own for own in known if len(own) > 1]
    if several and (q.step is None or all(len({r.at for r in own}) == 1 for own in several)):
        raise UserError(
            f"two rows have {shown(several[0][0])}; --step {hint} keeps the last row of each run, "
            "--within COLUMN compares each value of a column by itself, more --by or another "
            "--seed tell runs apart; else keep one row of each run"
        )
    for read in (read for own in known for read in own if q.step is not None):
        if read.step is None or not math.isfinite(read.step):
            raise UserError(f"row {read.row + 1} has no {q.step}; fill it, or leave out --step")
    last = [max(own, key=lambda r: (r.at, r.row)) for own in known if own]
    notes += _said_of_ends(known, last, q.step, at, shown)
    picked = last if q.best is None else _best(runs, known, q, notes)
    if q.best is None and q.step is not None:
        notes += _beside_best(known, last, q)
    of_runs = {read.run: read for read in picked}
    return [of_runs.get(run, own[-1]) for run, own in runs.items()]


def _said_of_ends(
    known: Sequence[Sequence[Read]], last: Sequence[Read], step: str | None, at: str, shown: Any
) -> Iterator[str]:
    several = []
    again = []
    for own, end in zip(filter(None, known), last, strict=True):
        if len({str(r.value) for r in own if r.at == end.at}) > 1:
            several.append(shown(end))
        if own[-1].at < end.at and sum(r.at == own[-1].at for r in own) > 1:
            again.append(shown(end))
    if several:
        yield f"several values at the last {step}; the last row counts: {some(several)}"
    if again:
        yield f"{step} begins again, and its largest value counts: {some(again)}"
    for table in dict.fromkeys(read.table for read in last):
        latest = max(read.at for read in last if read.table == table)
        early = [read for read in last if read.table == table and read.at < latest]
        texts = [f"{shown(read)} (at {read.at:g})" for read in early]
        if texts:
            yield f"ended before {at} {latest:g}, and their last value counts: {some(texts)}"


def _best(
    runs: Runs, known: Sequence[Sequence[Read]], q: "Question", notes: list[str]
) -> list[Read]:
    """Return the row of each run at the step at which a column is best."""
    is_higher = better(str(q.best)) if q.best != q.metric else None
    sign = -1 if (q.higher_is_better if is_higher is None else is_higher) else 1
    picked = []
    counts = []
    for own in filter(None, known):
        rows = [r for r in runs[own[0].run] if not r.why and math.isfinite(r.best or math.nan)]
        best = min(rows, key=lambda r: sign * (r.best or 0.0), default=own[0])
        found = [read for read in own if read.at == best.at]
        if not found:
            raise UserError(
                f"variant {best.variant!r}, {best.key} has no {q.metric} at the {q.step} of its "
                f"best {q.best}; log both at one {q.step}"
            )
        picked.append(found[-1])
        counts.append(len(rows))
    least = min(counts, default=0)
    most = max(counts, default=0)
    notes.append(f"the best row of each run by {q.best} counts, of {least} to {most} rows")
    return picked


def _beside_best(
    known: Sequence[Sequence[Read]], last: Sequence[Read], q: "Question"
) -> Iterator[str]:
    """Say the means of the last and of the best values, and where a sign turns."""
    if q.higher_is_better is None:
        return
    pick = max if q.higher_is_better else min
    values: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for own, end in zip(filter(None, known), last, strict=True):
        finite = [r.value for r in own if r.value is not None and math.isfinite(r.value)]
        if end.value is not None and math.isfinite(end.value):
            values.setdefault((end.table, end.variant), []).append((end.value, pick(finite)))
    means = {
        of: [sum(one) / len(own) for one in zip(*own, strict=True)] for of, own in values.items()
    }
    if all(a == b for a, b in means.values()):
        return
    texts = []
    turned = []
    for (table, variant), (value, best) in means.items():
        bases = [v for t, v in means if t == table]
        base = means[table, q.reference if q.reference in bases else bases[0]]
        texts.append(f"{' '.join(filter(None, (table, variant)))} {value:.4g}, best {best:.4g}")
        if (value - base[0]) * (best - base[1]) < 0:
            turned.append(str(variant))
    turns = f"; the sign of {' and '.join(turned[:SHOWN])} turns" if turned else ""
    yield f"last values count, not the best ones of runs (--best): {some(texts)}{turns}"
