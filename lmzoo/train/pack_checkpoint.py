"""The checkpoint of a pack: the rows of all members in one file, and the reading of one's own rows.

    K.KEY (P, N)     the numbers of stack K: `values`, and each key of the optimiser's state
    K.best (Q, N)    weights of the best epoch, of members whose last epoch is not the best

Arrays are written as they lie in memory (`lmzoo/lab/store/pack_files.py`), so that 256 members cost
little more than one. A file of one's own rows has the same names without K.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmzoo.lab.store.pack_files import NUMBER, RUN, RUNS, STATE, Array, Buffer, decode, encode
from lmzoo.lab.store.records import Record
from lmzoo.train.pack_layout import STEP, VALUES
from lmzoo.train.trainer import Training, numbered

BEST, LAYOUTS = "best", "layouts"
DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64"}
"""Types of arrays, as numpy and as safetensors name them."""

Member = tuple[str, Training, Sequence[Record]]
"""A run, its training after an epoch in a pack, and records that may not be on disk."""


def stacked_state(members: Sequence[Member]) -> Callable[[int], list[Buffer]]:
    """Return a function that makes the file of the state of now from a number, which it has.

    A thread may call it during the next epoch.
    """
    matrices: dict[str, Any] = {}
    numbers, layouts = dict[int, int](), list[Any]()
    best: dict[str, list[Any]] = {}
    runs = []
    for run, training, records in members:
        row = training.row
        assert row is not None
        key = id(row.matrices)
        if key not in numbers:
            numbers[key] = len(layouts)
            layouts.append(row.layout.places())
            matrices |= {f"{numbers[key]}.{name}": m for name, m in row.matrices.items()}
        stack = numbers[key]
        rows = {f"{stack}.{name}": row.index for name in row.matrices}
        if training.best_epoch not in (0, training.epoch):
            values = best.setdefault(f"{stack}.{BEST}", [])
            rows[f"{stack}.{BEST}"] = len(values)
            values.append(training.best_values(row.layout))
        state = {"stack": stack, "names": row.names, "records": records, **training.progress()}
        runs.append({RUN: run, "rows": rows, STATE: state})
    return partial(_encode, matrices, best, {RUNS: runs, LAYOUTS: layouts})


def _encode(
    matrices: dict[str, Any], best: dict[str, list[Any]], metadata: dict[str, Any], number: int
) -> list[Buffer]:
    stacked = {**matrices, **{name: np.stack(rows) for name, rows in best.items()}}
    arrays = {
        name: Array(DTYPES[m.dtype.name], m.shape, np.ascontiguousarray(m).data.cast("B"))
        for name, m in stacked.items()
    }
    return encode(arrays, {k: json.dumps(v) for k, v in {**metadata, NUMBER: number}.items()})


def read_rows(data: bytes) -> dict[str, Any]:
    """Return the state in a file of the rows of one run, as `Training.dump` gives it.

    A `ValueError` says that the file is damaged.
    """
    metadata, arrays = decode(data)
    state: dict[str, Any] = json.loads(metadata[STATE])
    layout = json.loads(metadata[LAYOUTS])[state.pop("stack")]
    kinds = {key: _named(key, array, layout) for key, array in arrays.items()}
    names, (loss, epoch) = state.pop("names"), state.pop("best")
    weights = {name: kinds[VALUES][name] for name in names}
    own = kinds.get(BEST, weights if epoch else {})
    groups = numbered(state.pop("groups"), len(names))
    for group in groups:
        group |= {key: tuple(x) for key, x in group.items() if key == "betas"}
    keys = [key for key in kinds if key not in (VALUES, BEST)]
    return {
        **state,
        RUN: metadata[RUN],
        "weights": weights,
        "optimiser": {
            "state": {i: {k: kinds[k][n] for k in keys} for i, n in enumerate(names) if keys},
            "param_groups": groups,
        },
        "best": {"loss": loss, "epoch": epoch, "weights": {n: own[n] for n in names if n in own}},
    }


def _named(key: str, array: Array, layout: Sequence[Any]) -> dict[str, Tensor]:
    dtype = next(name for name, short in DTYPES.items() if short == array.dtype)
    row = torch.from_numpy(np.frombuffer(array.data, dtype).copy())
    if key == STEP:
        return {name: row[i].clone() for i, (name, *_) in enumerate(layout)}
    return {n: row[i : i + math.prod(shape)].view(shape).clone() for n, shape, i in layout}
