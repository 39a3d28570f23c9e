"""Registries: tables of named parts, such as cells, models and corpora.

A registry also defines how its parts appear in configs. A field annotated
`Annotated[Any, REGISTRY]` accepts the config of a part, its name, or `{"name": ..., fields}`. It is
written in the last form.

The rows of the zoo: everything that `lmzoo list` shows and `lmzoo describe` explains.

Most rows are presets: a registered model with some config fields set. A row without a model (a
technique, a diagnostic, a decoder) is listed and described, but cannot be built.
"""

import dataclasses
import importlib
import pkgutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic_core import core_schema

from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError, near
from lmzoo.base.plain import Fields, FieldsDict, Texts

T = TypeVar("T")
PARTS: dict[type, Any] = {}
"""The class of a config -> the part to which it belongs, in any registry."""


class Registry(Generic[T]):
    """Named parts of one kind ("cell", "model", "corpus")."""

    def __init__(self, kind: str):
        self.kind = kind
        self._parts: dict[str, T] = {}

    def add(self, name: str, part: T, *, replace: bool = False) -> T:
        """Register `part`. A class that is defined again, as in a notebook, replaces the old one.

        A `UserError` says that another part has this name or this Config.
        """
        known = self._parts.get(name)
        if known not in (None, part) and not replace and _origin(known) != _origin(part):
            raise UserError(
                f"{self.kind} {name!r} is registered already, by {_origin(known)}; choose another "
                f"name in {_origin(part)}"
            )
        config = getattr(part, "Config", None)
        # A config belongs to one part, as `name_of` says.
        if config is not None:
            other = PARTS.setdefault(config, part)
            if _origin(other) != _origin(part):
                raise UserError(
                    f"{self.kind} {name!r} has the Config of {_origin(other)}; define its own"
                )
        self._parts[name] = part
        return part

    def __call__(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a class: `@CELLS("mgu")`.

        A `UserError` names the methods, or the Config, that the class lacks.
        """

        def register(part: T) -> T:
            # Here, and not at the first call: the author sees it at once.
            lacking: list[str] = sorted(getattr(part, "__abstractmethods__", ()))
            if not hasattr(part, "Config"):
                lacking.append("Config")
            if lacking:
                names = " and ".join(lacking)
                raise UserError(f"{self.kind} {name!r} lacks {names}; add it to {_origin(part)}")
            part.name = name  # type: ignore[attr-defined]
            return self.add(name, part)

        return register

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            raise UserError(f"no {self.kind} {name!r}{near(name, sorted(self))}")
        return self._parts[name]

    def get(self, name: str) -> T | None:
        """Return a part, or None if no part has this name."""
        return self._parts.get(name)

    def values(self) -> Iterable[T]:
        return self._parts.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def parse(self, value: Any) -> Any:
        """Return the config of a part from a config, a name, or a mapping with the key "name".

        A `UserError` says that there is no such part, or that a field is invalid.
        """
        configs = tuple(part.Config for part in self._parts.values())  # type: ignore[attr-defined]
        if isinstance(value, configs):
            return value
        fields = value
        if isinstance(value, str):
            fields = {"name": value}
        if not isinstance(fields, Mapping) or "name" not in fields:
            raise UserError(f"a {self.kind} is a name or a mapping with 'name', got {value!r}")
        part = self[fields["name"]]
        rest = {key: item for key, item in fields.items() if key != "name"}
        return from_dict(part.Config, rest)  # type: ignore[attr-defined]

    def name_of(self, part_config: Any) -> str:
        """Return the name of the part to which this config belongs."""
        kind = type(part_config)
        return next(name for name, part in self._parts.items() if part.Config is kind)  # type: ignore[attr-defined]

    def dump(self, part_config: Any) -> FieldsDict:
        """Return `{"name": ..., fields}`, the inverse of `parse`."""
        return {"name": self.name_of(part_config)} | to_dict(part_config)

    def build(self, part_config: Any, *args: Any, **sizes: Any) -> Any:
        """Build a part from its config and the further arguments of its class."""
        return self[self.name_of(part_config)](part_config, *args, **sizes)  # type: ignore[operator]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Let pydantic validate and write fields that are annotated `Annotated[Any, REGISTRY]`."""
        dump = core_schema.plain_serializer_function_ser_schema(self.dump)
        return core_schema.no_info_plain_validator_function(self.parse, serialization=dump)


def _origin(part: Any) -> str:
    """Return where a class or function is defined, or the value of any other part."""
    if not hasattr(part, "__qualname__"):
        return repr(part)
    module = sys.modules.get(part.__module__)
    place = getattr(module, "__file__", None)
    if place is None:
        place = part.__module__
    return f"{place}: {part.__qualname__}"


def part_modules(value: Any) -> set[str]:
    """Return the modules that define the parts of a config, nested configs included."""
    modules = set()
    if isinstance(value, Mapping):
        for item in value.values():
            modules |= part_modules(item)
    elif dataclasses.is_dataclass(value):
        kind = type(value)
        modules.add(kind.__module__)
        if kind in PARTS:
            modules.add(PARTS[kind].__module__)
        for declared in dataclasses.fields(value):
            modules |= part_modules(getattr(value, declared.name))
    else:
        part = getattr(value, "part", None)  # a normaliser
        if part is not None:
            modules.add(part.__module__)
    return modules


def discover(package: str):
    """Import every module below `package`, so that its parts are registered."""
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
        importlib.import_module(module.name)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One entry of `lmzoo list`."""

    name: str
    family: str
    """count, ngram, latent-markov, slot, recurrent, attention, vae, ..., or technique."""
    source: str
    """Author, year and arXiv id of the publication, or the source document."""
    summary: str
    document: str = ""
    """The source documents that contain it ("S0", "S0, S3"; see docs/sources.md), or ""."""
    aliases: Texts = ()
    """Its names in the source documents ("DLM46"), accepted wherever a row name is."""
    score: str = ""
    """The `contract.Score` of the model; "" for a row without a model."""
    model: str | None = None
    """Name of the registered model, or None."""
    fields: Fields = field(default_factory=dict)
    """Config fields that differ from the model's defaults."""


ROWS: Registry[Row] = Registry("row of the zoo")


def preset(name: str, *, model: str, fields: Fields, **rest: Any) -> Row:
    """Register a row: `model` with `fields` set.

    `rest` holds the fields of `Row` in which it differs from the row of its model.
    """
    # What is not said is as in the row of the model.
    row = dataclasses.replace(ROWS[model], name=name, aliases=(), fields=fields)
    return ROWS.add(name, dataclasses.replace(row, **rest))


def add_rows(path: Path):
    """Register the rows of a TOML table: presets, and techniques, which have no model."""
    for name, fields in tomllib.loads(path.read_text(encoding="utf-8")).items():
        fields["aliases"] = tuple(fields.get("aliases", ()))
        if "model" in fields:
            preset(name, **fields)
        else:
            ROWS.add(name, Row(name=name, **fields))
