"""The start design: the settings that all points of a study try first.

It has `SIZE` settings, or a quarter of the samples if that is more. One field: the middles of equal
cells of its range, equal in the logarithm if the range says so. Several fields: points of a
scrambled Sobol sequence (Owen 1998, J. Complexity 14). A default setting inside the ranges replaces
the nearest setting. The settings are in the order of their distance from the default one; a study
with fewer samples leaves out the last ones.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmzoo.search_space import Choice, IntRange, Range

SIZE = 5
"""Settings of the start design of a study with at most 23 samples."""

Setting = dict[str, Any]
Space = Mapping[str, Range]


def start_design(space: Space, default: Setting, samples: int, seed: int) -> list[Setting]:
    """Return at most `samples` different settings."""
    size = max(SIZE, samples // 4)
    if len(space) == 1:
        shares = ((np.arange(size) + 0.5) / size)[:, None]
    else:
        from scipy.stats import qmc  # takes half a second to import

        sequence = qmc.Sobol(len(space), scramble=True, rng=np.random.default_rng(seed))
        shares = sequence.random_base2((size - 1).bit_length())[:size]
    settings = [
        {path: _value(bounds, x) for (path, bounds), x in zip(space.items(), row, strict=True)}
        for row in shares
    ]
    if all(_contains(bounds, default[path]) for path, bounds in space.items()):
        centre = coordinates(space, [default])
        distances = ((coordinates(space, settings) - centre) ** 2).sum(1)
        order = np.argsort(distances, kind="stable")
        settings = [default, *(settings[i] for i in order[1:])]
    unique: list[Setting] = []
    for setting in settings:
        if setting not in unique:
            unique.append(setting)
    return unique[:samples]


def coordinates(space: Space, settings: Sequence[Setting]) -> NDArray[np.float64]:
    """Return the settings as points: a range is [−1, 1], each value of a choice is an axis."""
    columns: list[list[float]] = []
    for path, bounds in space.items():
        values = [setting[path] for setting in settings]
        if isinstance(bounds, Choice):
            columns += [[float(value == option) for value in values] for option in bounds.values]
        else:
            columns.append([2 * _share(bounds, value) - 1 for value in values])
    return np.array(columns).T


def _value(bounds: Range, share: float) -> Any:
    """Return the value at a share of a range; a choice is divided into equal parts."""
    if isinstance(bounds, Choice):
        return bounds.values[int(share * len(bounds.values))]
    if bounds.log:
        value = bounds.low * (bounds.high / bounds.low) ** float(share)
    else:
        value = bounds.low + (bounds.high - bounds.low) * float(share)
    return round(value) if isinstance(bounds, IntRange) else float(f"{value:.4g}")


def _share(bounds: Range, value: float) -> float:
    assert not isinstance(bounds, Choice)
    scale = log if bounds.log else float
    return (scale(value) - scale(bounds.low)) / (scale(bounds.high) - scale(bounds.low))


def _contains(bounds: Range, value: Any) -> bool:
    if isinstance(bounds, Choice):
        return value in bounds.values
    return bounds.low <= value <= bounds.high
