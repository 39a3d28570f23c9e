"""A training's state as a file: torch's own format, the optimiser's numbers in one tensor.

    optimiser = {"param_groups": ..., "numbers": (N,), "places": "[[parameter, key, shape], ...]"}

Every tensor of such a file is a file inside of it, and takes torch longer than its numbers do;
an optimiser has some for each parameter. Weights are as they always are, for `torch.load`.
"""

import io
import json
import math
import zipfile
from typing import Any

import torch
from torch import Tensor

State = dict[str, Any]


def checkpoint(state: State) -> bytes:
    """The file that holds what `Training.dump` gave."""
    file = io.BytesIO()
    torch.save({**state, "optimiser": state["optimiser"] and _packed(state["optimiser"])}, file)
    return file.getvalue()


def read_checkpoint(data: bytes) -> State:
    """The state that the file holds; no code in it is run.

    Raises:
        Exception: of many kinds, if it is damaged. torch does not look at the checksums that
            its own archive has, and would take a flipped bit for a weight.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        damaged = archive.testzip()
    if damaged:
        raise zipfile.BadZipFile(damaged)
    state = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    return {**state, "optimiser": state["optimiser"] and _unpacked(state["optimiser"])}


def _packed(optimiser: State) -> State:
    """The optimiser's state with its tensors in one; as it is where they are of several types."""
    state = optimiser["state"]
    held = [(p, key, value) for p in state for key, value in state[p].items()]
    types = {value.dtype if isinstance(value, Tensor) else None for *_, value in held}
    if len(types) != 1 or None in types:
        return optimiser
    return {
        "param_groups": optimiser["param_groups"],
        "numbers": torch.cat([value.flatten().cpu() for *_, value in held]),
        "places": json.dumps([(p, key, list(value.shape)) for p, key, value in held]),
    }


def _unpacked(optimiser: State) -> State:
    if "places" not in optimiser:
        return optimiser
    places = json.loads(optimiser["places"])
    parts = optimiser["numbers"].split([math.prod(shape) for *_, shape in places])
    state: dict[int, State] = {}
    for (p, key, shape), part in zip(places, parts, strict=True):
        state.setdefault(p, {})[key] = part.view(shape).clone()
    return {"state": state, "param_groups": optimiser["param_groups"]}
