"""The public interface to the zoo: rows, configs and models by name.

zoo.names()                         names of all rows
zoo.row("gru_mixture")              the description of a row; aliases ("DLM46") work too
zoo.config("gru_mixture", width=64) the config of a row, with some fields changed
zoo.build(config, task, seed=0)     the model with initial weights
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

import lmzoo.decode
import lmzoo.models  # noqa: F401  both imports register rows
from lmzoo.base.arguments import text
from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError, near
from lmzoo.base.memory import allocating, machine_bytes, require_memory
from lmzoo.base.own_parts import import_installed
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.registry import ROWS, Row
from lmzoo.contract import MODELS, LanguageModel, Task
from lmzoo.functional.parameters import initialise
from lmzoo.kernels.guest import forked_generators


def names() -> list[str]:
    """Return the names of all rows, sorted by family."""
    return sorted(ROWS, key=lambda name: (ROWS[name].family, name))


def row(name: str) -> Row:
    """Return the row with this name or alias; a `UserError` suggests similar names."""
    name = text("row", name)
    found = _find(name)
    if found is None:
        known = sorted(ROWS)
        for other in ROWS.values():
            known += other.aliases
        raise UserError(f"no {ROWS.kind} {name!r}{near(name, known)}")
    return found


def is_row(name: str) -> bool:
    """Return whether a row has this name or alias."""
    return _find(name) is not None


def _find(name: str) -> Row | None:
    for known in ROWS.values():
        # Ids of documents are in capitals: DLM46.
        if name.upper() in known.aliases:
            return known
    return ROWS.get(name)


def config(name: str, **fields: Any) -> Any:
    """Return the config of a row's model.

    Args:
        name: Name or alias of the row.
        **fields: Fields to change. A mapping changes fields of a part: `cell={"cuts": [4]}`.

    Raises:
        UserError: There is no such row, the row has no model, or a field is invalid.
    """
    entry = row(name)
    if entry.model is None:
        raise UserError(f"{entry.name} has no model to build: it is a row of family {entry.family}")
    # Validated, so that a row with a wrong field is found by its tests.
    preset = to_dict(from_dict(MODELS[entry.model].Config, entry.fields))
    return MODELS.parse({"name": entry.model} | overlay(preset, fields))


def change(model_config: Any, fields: Fields) -> Any:
    """Return a model's config with some fields changed; a `UserError` if one is invalid."""
    if not fields:
        return model_config
    return MODELS.parse(overlay(MODELS.dump(model_config), fields))


def overlay(base: Fields, over: Fields) -> FieldsDict:
    """Merge the fields `over` into the fields `base`, recursively.

    A mapping with another "name" than in `base` is a different part and replaces the old one. The
    name of a part alone is a part. A mapping over a list changes its entries by number, from 1.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        # The name of a part alone is a part.
        if isinstance(old, str) and isinstance(value, Mapping):
            old = {"name": old}
        if isinstance(old, list) and isinstance(value, Mapping):
            numbered = {str(number): entry for number, entry in enumerate(old, 1)}
            entries = overlay(numbered, value)
            if len(entries) > len(old):
                got = list(value)
                raise UserError(f"{key} has {len(old)} entries, numbered from 1; got {got}")
            value = list(entries.values())
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            name = old.get("name")
            if value.get("name", name) == name:
                value = overlay(old, value)
        merged[key] = value
    return merged


def build(model_config: Any, task: Task, seed: int = 0, init: str = "default") -> LanguageModel:
    """Build a model from its config and draw its initial weights; see `parameters.initialise`."""
    check_size(model_config, task)
    with forked_generators(), allocating(f"model {MODELS.name_of(model_config)}"):
        model = MODELS.build(model_config, task)
        initialise(model, seed, init)
    return model


LARGE = 4096
"""Least integer in a model's config from which its size is computed before it is built."""
MOST_TENSORS = 50_000
"""Tensors of a model that are counted; more are refused."""


class _CountBytes(TorchFunctionMode):
    """Counts the bytes of the tensors that a block makes on the device `meta`."""

    size = 0
    tensors = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: FieldsDict | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _device_constructors() and isinstance(result, Tensor):
            self.size += result.numel() * result.element_size()
            self.tensors += 1
            # Before all are counted: a wrong size may give millions.
            if self.size > machine_bytes() or self.tensors > MOST_TENSORS:
                raise OverflowError
        return result


def check_size(model_config: Any, task: Task):
    """Raise a `UserError` if a model with large numbers in its config needs too much memory."""
    # To build twice takes time; small numbers make small models.
    if _largest(to_dict(model_config)) < LARGE:
        return
    name = MODELS.name_of(model_config)
    count = _CountBytes()
    try:
        with torch.device("meta"), count:
            MODELS.build(model_config, task)
    except OverflowError:
        # The message has the size; without one, the tensors were too many.
        require_memory(count.size, f"model {name}")
        raise UserError(
            f"model {name} has more than {MOST_TENSORS:,} tensors; choose smaller sizes"
        ) from None
    except Exception:  # not every model can be built without numbers
        return


def _largest(value: Any) -> int | float:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    if isinstance(value, int | float):
        return value
    return 0


import_installed()  # last: plugins may import this module
