"""The front door: every row of the zoo by name or by the seed's id.

zoo.names()                         all rows
zoo.row("DLM46")                    what it is
zoo.config("DLM46", width=64)       its config, some fields changed
zoo.build(config, task, seed=0)     the model itself, initialised
"""

from collections.abc import Mapping
from typing import Any

import lmzoo.decode
import lmzoo.models  # noqa: F401  importing them registers them
from lmzoo.catalogue import ROWS, Row
from lmzoo.config import from_dict, to_dict
from lmzoo.contract import MODELS, LanguageModel, Task, initialise
from lmzoo.errors import UserError


def names() -> list[str]:
    """All rows, in the order of their families."""
    return sorted(ROWS, key=lambda name: (ROWS[name].family, name))


def row(name: str) -> Row:
    """The row of this name or seed id.

    Raises:
        UserError: there is none; the message suggests the nearest.
    """
    for known in ROWS:
        if name.upper() in ROWS[known].aliases:
            return ROWS[known]
    return ROWS[name]


def config(name: str, **fields: Any) -> Any:
    """The row's model config; `fields` override, and may reach in: `cell={"cuts": ...}`.

    Raises:
        UserError: no such row, the row is not a model, or a field is refused.
    """
    entry = row(name)
    if entry.model is None:
        raise UserError(f"{entry.name} is a {entry.family}, not a model that can be built")
    cls = MODELS[entry.model].Config
    start = to_dict(from_dict(cls, entry.fields))
    return from_dict(cls, overlay(start, fields))


def overlay(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, mapping by mapping; a part of another name starts afresh."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if (
            isinstance(old, Mapping)
            and isinstance(value, Mapping)
            and value.get("name", old.get("name")) == old.get("name")
        ):
            merged[key] = overlay(old, value)
        else:
            merged[key] = value
    return merged


def build(model_config: Any, task: Task, seed: int = 0, init: str = "default") -> LanguageModel:
    """The model, its weights drawn from `seed`, its matrices as `init` says."""
    model = MODELS.build(model_config, task)
    initialise(model, seed, init)
    return model
