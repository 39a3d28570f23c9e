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
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmzoo.base.foreign import check_archive
from lmzoo.base.plain import FieldsDict
from lmzoo.lab.store.pack_files import NUMBER, RUN, RUNS, STATE, Array, Buffer, decode, encode
from lmzoo.lab.store.records import Record
from lmzoo.lab.store.saved_run import OtherRunError
from lmzoo.train.pack_layout import STEP, VALUES
from lmzoo.train.trainer import State, Training, numbered

BEST = "best"
LAYOUTS = "layouts"
DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64"}
"""Types of arrays, as numpy and as safetensors name them."""

Member = tuple[str, Training, Sequence[Record]]
"""A run, its training after an epoch in a pack, and records that may not be on disk."""


def stacked_state(members: Sequence[Member]) -> Callable[[int], list[Buffer]]:
    """Return a function that makes the file of the state of now from a number, which it has.

    A thread may call it during the next epoch.
    """
    matrices: FieldsDict = {}
    numbers = {}
    layouts = []
    best: dict[str, list[Any]] = {}
    runs = []
    for run, training, records in members:
        row = training.row
        assert row is not None
        # Members of one trainer share their arrays: these are written once.
        key = id(row.matrices)
        if key not in numbers:
            numbers[key] = len(layouts)
            layouts.append(row.layout.places())
            for name, matrix in row.matrices.items():
                matrices[f"{numbers[key]}.{name}"] = matrix
        stack = numbers[key]
        rows = {f"{stack}.{name}": row.index for name in row.matrices}
        # Weights of the best epoch that are those of the last one are in the stack already.
        if training.best_epoch not in (0, training.epoch):
            values = best.setdefault(f"{stack}.{BEST}", [])
            rows[f"{stack}.{BEST}"] = len(values)
            values.append(training.best_values(row.layout))
        state = {"stack": stack, "names": row.names, "records": records}
        state |= training.progress()
        runs.append({RUN: run, "rows": rows, STATE: state})
    metadata = {RUNS: runs, LAYOUTS: layouts}
    return partial(_encode, matrices, best, metadata)


def _encode(
    matrices: FieldsDict, best: dict[str, list[Any]], metadata: FieldsDict, number: int
) -> list[Buffer]:
    stacked = dict(matrices)
    for name, rows in best.items():
        stacked[name] = np.stack(rows)
    arrays = {}
    for name, matrix in stacked.items():
        content = np.ascontiguousarray(matrix).data.cast("B")
        kind = DTYPES[matrix.dtype.name]
        arrays[name] = Array(kind, matrix.shape, content)
    # The header of a file has texts only.
    texts = {key: json.dumps(value) for key, value in metadata.items()}
    texts[NUMBER] = json.dumps(number)
    return encode(arrays, texts)


def read_rows(data: bytes) -> FieldsDict:
    """Return the state in a file of the rows of one run, as `Training.dump` gives it.

    A `ValueError` says that the file is damaged.
    """
    metadata, arrays = decode(data)
    state: FieldsDict = json.loads(metadata[STATE])
    layouts = json.loads(metadata[LAYOUTS])
    layout = layouts[state.pop("stack")]
    kinds = {key: _named(key, array, layout) for key, array in arrays.items()}
    names = state.pop("names")
    loss, epoch = state.pop("best")
    # A member may lack parameters of the layout: those that its cuts take away.
    weights = {name: kinds[VALUES][name] for name in names}
    best = kinds.get(BEST)
    if best is None and epoch:
        best = weights  # the last epoch is the best one
    best_weights = {}
    if best is not None:
        for name in names:
            if name in best:
                best_weights[name] = best[name]
    groups = numbered(state.pop("groups"), len(names))
    for group in groups:
        if "betas" in group:
            group["betas"] = tuple(group["betas"])  # JSON has lists only
    moments = defaultdict(dict)
    for key, numbers in kinds.items():
        if key in (VALUES, BEST):
            continue
        for place, name in enumerate(names):
            moments[place][key] = numbers[name]
    return state | {
        RUN: metadata[RUN],
        "weights": weights,
        "optimiser": {"state": dict(moments), "param_groups": groups},
        "parameters": names,
        "best": {"loss": loss, "epoch": epoch, "weights": best_weights},
    }


def _named(key: str, array: Array, layout: Sequence[Any]) -> dict[str, Tensor]:
    dtypes = {short: name for name, short in DTYPES.items()}
    numbers = np.frombuffer(array.data, dtypes[array.dtype])
    # A copy: the bytes of the file cannot be written to.
    row = torch.from_numpy(numbers.copy())
    found = {}
    for place, (name, shape, begin) in enumerate(layout):
        if key == STEP:  # one number for each parameter
            own = row[place]
        else:
            own = row[begin : begin + math.prod(shape)].view(shape)
        found[name] = own.clone()
    return found


def checkpoint_bytes(state: State) -> bytes:
    """Return the checkpoint file of a state from `Training.dump`."""
    file = io.BytesIO()
    optimiser = state["optimiser"]
    if optimiser:
        optimiser = _flatten_optimiser(optimiser)
    torch.save(state | {"optimiser": optimiser}, file)
    return file.getvalue()


def read_checkpoint(data: bytes, run: str = "") -> State:
    """Return the state from a checkpoint file; code inside the file is never executed.

    `run` is the identity of the run, if it is known; another run is an `OtherRunError`. A damaged
    file raises errors of various types. torch ignores the checksums of its own archive and would
    load a flipped bit, so they are verified here.
    """
    if data[:2] == b"PK":  # a ZIP archive: the format of torch
        state = _load(data)
    else:
        state = read_rows(data)
    if run and state.get(RUN) != run:
        raise OtherRunError(f"it belongs to run {state.get(RUN)}, not {run}")
    optimiser = state["optimiser"]
    if optimiser:
        optimiser = _unflatten_optimiser(optimiser)
    return state | {"optimiser": optimiser}


def _load(data: bytes) -> State:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_archive(archive, "the checkpoint", len(data))
        damaged = archive.testzip()
    if damaged:
        raise zipfile.BadZipFile(damaged)
    return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def _flatten_optimiser(optimiser: State) -> State:
    """Concatenate all state tensors; return the state unchanged if their dtypes differ."""
    values = []
    places = []
    for parameter, numbers in optimiser["state"].items():
        for key, value in numbers.items():
            if not isinstance(value, Tensor):
                return optimiser
            values.append(value.flatten().cpu())
            places.append((parameter, key, list(value.shape)))
    if len({value.dtype for value in values}) != 1:
        return optimiser
    return {
        "param_groups": optimiser["param_groups"],
        "numbers": torch.cat(values),
        "places": json.dumps(places),
    }


def _unflatten_optimiser(optimiser: State) -> State:
    if "places" not in optimiser:
        return optimiser
    places = json.loads(optimiser["places"])
    sizes = [math.prod(shape) for _, _, shape in places]
    parts = optimiser["numbers"].split(sizes)
    state: dict[int, State] = {}
    for (parameter, key, shape), part in zip(places, parts, strict=True):
        own = state.setdefault(parameter, {})
        # A copy: a view would keep the numbers of all parameters in memory.
        own[key] = part.view(shape).clone()
    return {"state": state, "param_groups": optimiser["param_groups"]}
