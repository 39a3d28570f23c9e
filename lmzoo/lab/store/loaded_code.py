"""Whether the code that this process has imported is that of its files now.

A notebook edits a file, and may not load it again. Functions are compared with those that the file
defines. Python keeps nothing of the rest of a module, such as its constants: it is compared with
that of the first call after the import. Standard library only.
"""

import dis
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

from lmzoo.base.errors import UserError

_SEEN: dict[str, tuple[object, Any]] = {}
"""Module -> its spec, which a reload replaces, and its code outside of functions."""


def check_loaded(files: Mapping[str, bytes]):
    """Raise a `UserError` if a module was imported from other content of its file."""
    imported = dict[str, ModuleType]()
    changed = list[tuple[bool, str]]()
    """Whether only what a module imports has changed, and its name."""
    written = defaultdict[tuple[str, str], list[Any]](list)
    for relative, content in files.items():
        name = relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = sys.modules.get(name)
        # Another loader, such as that of pytest, compiles other code.
        if module is None or type(module.__loader__) is not SourceFileLoader:
            continue
        imported[name] = module
        whole = compile(content, relative, "exec", dont_inherit=True)
        for code in _codes(whole):
            written[name, code.co_qualname].append(_plain(code))
        rest = _plain(whole, functions=False)
        spec, seen = _SEEN.get(name, (None, None))
        if spec is not module.__spec__:
            _SEEN[name] = module.__spec__, rest
        elif seen != rest:
            changed.append((False, name))
    for name, module in imported.items():
        for function in _functions(module):
            code = function.__code__
            known = written.get((function.__module__, code.co_qualname))
            # A file may define a name several times, so any of these will do.
            if known and _plain(code) not in known:
                changed.append((function.__module__ != name, name))
    # A module itself is named before one that only imports from it.
    for _, name in sorted(changed):
        raise UserError(
            f"{imported[name].__file__} has changed since it was imported; "
            f"call importlib.reload({name}), and repeat what uses it"
        )


LINE = "__firstlineno__"
"""Where a class begins: since Python 3.13 the code of its body sets this name to a constant."""


def _plain(code: CodeType, *, functions: bool = True) -> Any:
    """Return what code does, without its lines; perhaps without the functions inside."""
    constants = []
    for value in code.co_consts:
        if not isinstance(value, CodeType):
            constants.append((type(value), value))
        elif functions or not value.co_flags & inspect.CO_OPTIMIZED:  # a class is not optimised
            constants.append(_plain(value, functions=functions))
    does: Any = code.co_code
    if LINE in code.co_names:
        steps = [(step.opname, step.argval) for step in dis.get_instructions(code)]
        # The step before has the line.
        del steps[steps.index(("STORE_NAME", LINE)) - 1]
        does = [(name, value) for name, value in steps if not isinstance(value, CodeType)]
        line = int, code.co_firstlineno
        constants = [own for own in constants if own != line]
    return does, code.co_names, code.co_varnames, constants


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)


def _functions(owner: Any) -> Iterator[FunctionType]:
    """Yield the functions in the names of a module, and in those of its classes."""
    home = getattr(owner, "__module__", owner.__name__)
    for value in vars(owner).values():
        function = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
        if isinstance(function, FunctionType):
            yield function
        elif isinstance(function, type) and function.__module__ == home:
            yield from _functions(function)
