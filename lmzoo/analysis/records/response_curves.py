"""The fitted responses of a study's points: the curves by which their settings were chosen.

`lmzoo/statistics/responses.py` has the model. It is fitted again, to the lowest loss of each
setting that was not pruned, as the sweep did.
"""

import json

import numpy as np
import polars as pl

from lmzoo.analysis.records.curve_data import epochs_of
from lmzoo.analysis.records.load import StudyFolder
from lmzoo.analysis.records.search_ranges import search_ranges
from lmzoo.statistics.responses import fit_responses

SCHEMA = {"label": pl.String, "value": pl.Float64, "fitted": pl.Float64, "best": pl.Boolean}


def response_curves(folder: StudyFolder, name: str) -> pl.DataFrame:
    """Return label, value, fitted, best: the fitted loss of each point at each tuned setting.

    The frame is empty unless `name` is the only field that was searched, and unless at least two
    points tried the same settings.
    """
    ranges = search_ranges(folder.study)
    if set(ranges) != {name} or "low" not in ranges[name]:
        return pl.DataFrame(schema=SCHEMA)
    lowest = epochs_of(folder, "tune").group_by("label", "setting", "status", maintain_order=True)
    lowest = lowest.agg(pl.col("valid_token").min())
    losses: dict[str, dict[float, float]] = {}
    for label, setting, status, loss in lowest.iter_rows():
        value = json.loads(setting).get(name)
        known = {"pruned": np.nan, "finished": loss}.get(status, np.inf)
        losses.setdefault(label, {})[value] = np.inf if known is None else known
    every = sorted({value for own in losses.values() for value in own})
    shared = {
        label: [own[value] for value in every]
        for label, own in losses.items()
        if set(own) == set(every) and np.isfinite(list(own.values())).any()
    }
    if len(shared) < 2 or len(every) < 3:
        return pl.DataFrame(schema=SCHEMA)
    low, high = (float(ranges[name][end]) for end in ("low", "high"))
    scale = np.log if ranges[name].get("log") else np.asarray
    low, high, places = scale(low), scale(high), scale(np.array(every))
    x = 2 * (places - low) / (high - low) - 1
    fit = fit_responses(list(shared.values()), x[:, None])
    rows = [
        (label, value, float(fitted), j == best)
        for label, means, best in zip(shared, fit.mean, fit.best, strict=True)
        for j, (value, fitted) in enumerate(zip(every, means, strict=True))
    ]
    return pl.DataFrame(rows, SCHEMA, orient="row").sort("label", "value")
