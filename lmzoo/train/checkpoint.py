"""Checkpoint files: torch's format, with the optimiser state flattened into one tensor.

    optimiser = {"param_groups": ..., "numbers": (N,), "places": "[[parameter, key, shape], ...]"}

The identity of the run is in the file, `run`, so that the checkpoint of another run is refused.

torch stores every tensor as a separate member of the archive, and this costs more time than the
numbers themselves; an optimiser has several small tensors per parameter. Weights are stored as
usual, so that `torch.load` reads them. A run of a pack whose worker died has a file of its rows
instead (`pack_checkpoint.py`).
"""

import io
import json
import math
import zipfile
from typing import Any

import torch
from torch import Tensor

from lmzoo.lab.store.saved_run import OtherRunError
from lmzoo.train.pack_checkpoint import read_rows

State = dict[str, Any]
RUN = "run"
"""Key of the identity of the run."""


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
