"""Runs of a study that were trained in different environments, are equal, or jump together.

A ranking over mixed environments says so. A point has no verdict if none of its confirm runs shares
a value with those of the reference, such as the version of a package: the whole difference may be
that of the value. `lmzoo/base/environment.py` says which values count.

**Jumps.** What is not recorded can change between two commands, and then all points change at once.
With m_j the mean of seed j over the points, a t-test compares the seeds before and after each
border between two seeds; the smallest p, times the number of borders, is said below `TINY`, if
most points change in the same direction.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import inf

import numpy as np
from polars import DataFrame, col
from scipy import special

from lmzoo.base.environment import Values, apart, counted
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.analysis.formatting import join_labels, labels_of
from lmzoo.lab.analysis.seeds import by_seed
from lmzoo.lab.statistics.draws import equal_lines
from lmzoo.lab.statistics.intervals import Array

TINY = 1e-4
LEAST = 0.1
"""Most points change by this part of the change of the mean, or more, if there is a jump."""


def environment_warnings(study: Fields, runs: DataFrame, losses: DataFrame) -> Iterator[str]:
    """Yield what runs of different environments, and jumps, make doubtful.

    `losses` are those of the confirm runs: point, run, seed, loss.
    """
    labels = labels_of(study)
    is_point = col("point").is_in(list(labels))
    known = runs.drop_nulls("status").filter(is_point)
    yield from _mixed(known, labels)
    confirmed = runs.join(losses, on="run", how="semi")
    confirm = of_points(confirmed)
    reference = study.get("reference", "")
    for point, name in apart(confirm, reference).items():
        ours = " or ".join(sorted(confirm[point][name]))
        theirs = " or ".join(sorted(confirm[reference][name]))
        yield (
            f"not comparable: {labels[reference]} with {name} {theirs}, {labels[point]} with "
            f"{ours}; run the sweep with --again, which trains again what differs from now"
        )
    is_drawn = col("parameters").ne_missing(0)  # no models of counts
    drawn = runs.filter(is_drawn).select("run")
    own = losses.unique("run", maintain_order=True)
    own = own.join(drawn, on="run")
    points = own["point"].unique().sort()
    names = [labels.get(point, point) for point in points]
    wide = by_seed(own, points)
    yield from equal_lines(names, wide)
    # A seed that some point lacks has no mean over all points.
    whole = wide[:, np.isfinite(wide).all(0)]
    means = whole.sum(0) / max(1, len(wide))
    border, p, size = jump(means)
    if p >= TINY:
        return
    changes = whole[:, border:].mean(1) - whole[:, :border].mean(1)
    # One point changes the mean, too, if one of its first seeds fails.
    middle = np.quantile(changes / size, 0.5, method="lower")
    if middle > LEAST:
        yield (
            f"the points change by {size:+.3g} after the first {border} seeds (p {p:.0e}): "
            "something changed between two commands"
        )


def _mixed(runs: DataFrame, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield how many runs were trained in each environment but the most frequent one."""
    values = union(of_points(runs))
    mixed = [name for name, own in values.items() if len(own) > 1]
    groups = defaultdict(Counter)
    for point, found in _counted(runs):
        parts = [f"{name} {found[name]}" for name in mixed if name in found]
        groups[", ".join(parts)][labels[point]] += 1
    sizes = Counter()
    for words, points in groups.items():
        sizes[words] = points.total()
    ranked = sizes.most_common()
    for words, count in ranked[1:]:
        usual = ranked[0][0]
        where = join_labels(groups[words])
        yield f"{count} of {len(runs)} runs were trained with {words}, others with {usual}: {where}"


def commits_line(runs: DataFrame) -> str:
    """Return of which commits runs are, if they are mixed or had changes; else ""."""
    found = commits_of(runs)
    dirty = ""
    if "+" in "".join(found):
        dirty = "; +: with changes that were not committed"
    if len(found) == 1 and not dirty and "" not in found:
        return ""
    # Outside of a clone there is no commit.
    commits = [f"{name or 'unknown'} ({count} runs)" for name, count in found.most_common()]
    return f"trained at {', '.join(commits)}{dirty}"


def commits_of(runs: DataFrame) -> Counter[str]:
    """Return the number of runs of each commit; "" is an unknown one."""
    found = Counter()
    for environment, count in begun_in(runs):
        found[environment.get("commit", "")] += count
    return found


def begun_in(runs: DataFrame) -> Iterator[tuple[FieldsDict, int]]:
    """Yield each environment in which runs began, and their number."""
    counts = runs.group_by("environment", maintain_order=True).len()
    for text, count in counts.iter_rows():
        yield json.loads(text)[0], count


def of_points(runs: DataFrame) -> dict[str, Values]:
    """Return the values of each point's runs."""
    found = defaultdict(dict)
    for point, values in _counted(runs):
        for name, value in values.items():
            found[point].setdefault(name, set()).add(value)
    return found


def union(points: Mapping[str, Values]) -> Values:
    """Return the values of all points."""
    found: Values = {}
    for values in points.values():
        for name, own in values.items():
            found.setdefault(name, set()).update(own)
    return found


def jump(means: Array) -> tuple[int, float, float]:
    """Return after how many seeds the means (S,) jump, p, and by how much."""
    count = len(means)
    # Each side of a border needs two seeds.
    if count < 4:
        return 0, 1.0, 0.0
    before = np.arange(2, count - 1)
    after = count - before
    centred = means - means.mean()
    sums = centred.cumsum()[before - 1]
    size = -sums / after - sums / before
    # The sum of squares within both parts: that of all less that between them.
    squares = (centred**2).sum()
    within = squares - before * after / count * size**2
    freedom = count - 2
    variance = np.maximum(within, TINY**4 * squares) / freedom
    scale = np.sqrt(variance * (1 / before + 1 / after))
    # Equal seeds on a side, as of an accuracy with few values, show no jump.
    varies_before = _range(means)[before - 1] > 0
    varies_after = _range(means[::-1])[after - 1] > 0
    varies = varies_before & varies_after
    t = np.abs(size) / np.where(varies, scale, inf)
    of_border = 2 * special.stdtr(freedom, -t)
    p = np.where(varies, (count - 3) * of_border, 1.0)
    best = int(p.argmin())
    if p[best] >= 1:
        return 0, 1.0, 0.0
    return int(before[best]), float(p[best]), float(size[best])


def _range(values: Array) -> Array:
    """Return the range of the first 1, 2, ... values."""
    most = np.maximum.accumulate(values)
    return most - np.minimum.accumulate(values)


def _counted(runs: DataFrame) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield point and what counts of the environment of each run."""
    known = {}
    facts = runs.select("point", "program", "environment")
    for point, program, text in facts.iter_rows():
        key = (program, text)
        if key not in known:  # thousands of runs have one environment
            start, end = json.loads(text or "[{}, {}]")
            known[key] = counted(start | end, program=bool(program))
        yield point, known[key]
