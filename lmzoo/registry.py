"""Name -> part. A duplicate raises, a miss suggests the nearest name.

A registry also knows how its parts appear inside a config: a field declared as
`Annotated[Any, REGISTRY]` accepts a part's config, its bare name, or `{"name": ..., fields}`,
and writes the last form.
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
    """A table of named parts of one kind ("cell", "model", "corpus")."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}

    def add(self, name: str, part: T) -> T:
        """Register `part`; two parts of one name are our own mistake."""
        assert name not in self._parts, f"{self.kind} {name!r} is registered twice"
        self._parts[name] = part
        return part

    def __call__(self, name: str) -> Callable[[T], T]:
        """Register a class by decoration: `@CELLS("mgu")`."""

        def register(part: T) -> T:
            part.name = name  # type: ignore[attr-defined]
            return self.add(name, part)

        return register

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            near = difflib.get_close_matches(name, self._parts, n=3)
            known = sorted(self)
            some = f"{', '.join(known[:12])}{' ...' if len(known) > 12 else ''}"
            hint = f"; near: {', '.join(near)}" if near else f"; known: {some}"
            raise UserError(f"no {self.kind} {name!r}{hint}")
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def read(self, value: Any) -> Any:
        """A part's config from a config, a bare name, or a mapping with `name`.

        Raises:
            UserError: no such part, or a field is refused.
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
        """The registered name of the part this config belongs to."""
        return next(n for n, part in self._parts.items() if part.Config is type(part_config))  # type: ignore[attr-defined]

    def write(self, part_config: Any) -> dict[str, Any]:
        """The inverse of `read`: `{"name": ..., fields}`."""
        return {"name": self.name_of(part_config), **to_dict(part_config)}

    def build(self, part_config: Any, *args: Any, **sizes: Any) -> Any:
        """The part itself, made from its config and the sizes its owner gives it."""
        return self[self.name_of(part_config)](part_config, *args, **sizes)  # type: ignore[operator]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """How a config field annotated `Annotated[Any, REGISTRY]` is read and written."""
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(self.write),
        )


def discover(package: str) -> None:
    """Import every module below `package`, so that decoration has happened."""
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
        importlib.import_module(module.name)
