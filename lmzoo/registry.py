"""Registries: tables of named parts, such as cells, models and corpora.

A registry also defines how its parts appear in configs. A field annotated
`Annotated[Any, REGISTRY]` accepts the config of a part, its name, or `{"name": ..., fields}`. It is
written in the last form.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from pydantic_core import core_schema

from lmzoo.config import from_dict, to_dict
from lmzoo.errors import UserError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named parts of one kind ("cell", "model", "corpus")."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}

    def add(self, name: str, part: T) -> T:
        """Register `part`. Its name must be new."""
        assert name not in self._parts, f"{self.kind} {name!r} is registered twice"
        self._parts[name] = part
        return part

    def __call__(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a class: `@CELLS("mgu")`."""

        def register(part: T) -> T:
            part.name = name  # type: ignore[attr-defined]
            return self.add(name, part)

        return register

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            near = difflib.get_close_matches(name, self._parts, n=3)
            known = sorted(self)
            first = f"{', '.join(known[:12])}{' ...' if len(known) > 12 else ''}"
            hint = f"; near: {', '.join(near)}" if near else f"; known: {first}"
            raise UserError(f"no {self.kind} {name!r}{hint}")
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def parse(self, value: Any) -> Any:
        """Return the config of a part from a config, a name, or a mapping with the key "name".

        Raises:
            UserError: There is no such part, or a field is invalid.
        """
        configs = tuple(part.Config for part in self._parts.values())  # type: ignore[attr-defined]
        if isinstance(value, configs):
            return value
        fields = {"name": value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping) or "name" not in fields:
            raise UserError(f"a {self.kind} is a name or a mapping with 'name', got {value!r}")
        rest = {key: item for key, item in fields.items() if key != "name"}
        return from_dict(self[fields["name"]].Config, rest)  # type: ignore[attr-defined]

    def name_of(self, part_config: Any) -> str:
        """Return the name of the part to which this config belongs."""
        return next(n for n, part in self._parts.items() if part.Config is type(part_config))  # type: ignore[attr-defined]

    def dump(self, part_config: Any) -> dict[str, Any]:
        """Return `{"name": ..., fields}`, the inverse of `parse`."""
        return {"name": self.name_of(part_config), **to_dict(part_config)}

    def build(self, part_config: Any, *args: Any, **sizes: Any) -> Any:
        """Build a part from its config and the further arguments of its class."""
        return self[self.name_of(part_config)](part_config, *args, **sizes)  # type: ignore[operator]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Let pydantic validate and write fields that are annotated `Annotated[Any, REGISTRY]`."""
        return core_schema.no_info_plain_validator_function(
            self.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(self.dump),
        )


def discover(package: str) -> None:
    """Import every module below `package`, so that its parts are registered."""
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
        importlib.import_module(module.name)
