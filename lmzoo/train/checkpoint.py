"""Checkpoint files: that of a run, and that of a pack, with the rows of all members.

A run has torch's format, with the optimiser state flattened into one tensor:

    optimiser = {"param_groups": ..., "numbers": (N,), "places": "[[parameter, key, shape], ...]"}

The identity of the run is in the file, `run`, so that the checkpoint of another run is refused.
torch stores every tensor as a separate member of the archive, and this costs more time than the
numbers themselves; an optimiser has several small tensors per parameter. Weights are stored as
usual, so that `torch.load` reads them.

In the file of a pack are

    K.KEY (P, N)     the numbers of stack K: `values`, and each key of the optimiser's state
    K.best (Q, N)    weights of the best epoch, of members whose last epoch is not the best

Arrays are written as they lie in memory (`lmzoo/lab/store/pack_files.py`), so that 256 members cost
little more than one. A run whose worker died has a file of its own rows, with the same names
without K.
"""

import io
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmzoo.base.foreign import check_archive
from lmzoo.lab.store.pack_files import NUMBER, RUN, RUNS, STATE, Array, Buffer, decode, encode
from lmzoo.lab.store.records import Record
from lmzoo.lab.store.saved_run import OtherRunError
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
        "parameters": names,
        "best": {"loss": loss, "epoch": epoch, "weights": {n: own[n] for n in names if n in own}},
    }


def _named(key: str, array: Array, layout: Sequence[Any]) -> dict[str, Tensor]:
    dtype = next(name for name, short in DTYPES.items() if short == array.dtype)
    row = torch.from_numpy(np.frombuffer(array.data, dtype).copy())
    if key == STEP:
        return {name: row[i].clone() for i, (name, *_) in enumerate(layout)}
    return {n: row[i : i + math.prod(shape)].view(shape).clone() for n, shape, i in layout}


State = dict[str, Any]


def checkpoint_bytes(state: State) -> bytes:
    """Return the checkpoint file of a state from `Training.dump`."""
    file = io.BytesIO()
    optimiser = state["optimiser"] and _flatten_optimiser(state["optimiser"])
    torch.save({**state, "optimiser": optimiser}, file)
    return file.getvalue()


def read_checkpoint(data: bytes, run: str = "") -> State:
    """Return the state from a checkpoint file; code inside the file is never executed.

    `run` is the identity of the run, if it is known; another run is an `OtherRunError`. A damaged
    file raises errors of various types. torch ignores the checksums of its own archive and would
    load a flipped bit, so they are verified here.
    """
    state = _load(data) if data[:2] == b"PK" else read_rows(data)
    if run and state.get(RUN) != run:
        raise OtherRunError(f"it belongs to run {state.get(RUN)}, not {run}")
    return {**state, "optimiser": state["optimiser"] and _unflatten_optimiser(state["optimiser"])}


def _load(data: bytes) -> State:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_archive(archive, "the checkpoint", len(data))
        damaged = archive.testzip()
    if damaged:
        raise zipfile.BadZipFile(damaged)
    return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def _flatten_optimiser(optimiser: State) -> State:
    """Concatenate all state tensors; return the state unchanged if their dtypes differ."""
    state = optimiser["state"]
    values = [(p, key, value) for p in state for key, value in state[p].items()]
    dtypes = {value.dtype if isinstance(value, Tensor) else None for *_, value in values}
    if len(dtypes) != 1 or None in dtypes:
        return optimiser
    return {
        "param_groups": optimiser["param_groups"],
        "numbers": torch.cat([value.flatten().cpu() for *_, value in values]),
        "places": json.dumps([(p, key, list(value.shape)) for p, key, value in values]),
    }


def _unflatten_optimiser(optimiser: State) -> State:
    if "places" not in optimiser:
        return optimiser
    places = json.loads(optimiser["places"])
    parts = optimiser["numbers"].split([math.prod(shape) for *_, shape in places])
    state: dict[int, State] = {}
    for (p, key, shape), part in zip(places, parts, strict=True):
        state.setdefault(p, {})[key] = part.view(shape).clone()
    return {"state": state, "param_groups": optimiser["param_groups"]}
