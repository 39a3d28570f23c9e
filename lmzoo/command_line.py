"""What every command line shares: a quick start and end, one-line errors, FIELD=VALUE settings."""

import atexit
import contextlib
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pydantic

from lmzoo.config import explain
from lmzoo.errors import UserError

ROOTS = ("model", "recipe", "corpus")


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """While it lasts nothing is collected: what imports make stays, and that is a great deal.

    To look through it again and again is a tenth of the time that importing torch takes.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def run_app(app: Callable[..., Any]) -> NoReturn:
    """Run a typer app and exit; bad input ends with one line on stderr and exit code 2."""
    # Or Python looks through all objects once more before it ends, for 0.2 to 0.4 s.
    atexit.register(gc.freeze)
    try:
        code = app(standalone_mode=False)
    except UserError as error:
        _refuse(str(error))
    except pydantic.ValidationError as error:
        _refuse(explain(error))
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        raise SystemExit(130) from None
    except Exception as error:
        # The command line's own complaints (typer keeps their classes to itself).
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()  # type: ignore[attr-defined]
        if message:
            _refuse(f"{message} (--help lists what there is)")
        code = 2  # no arguments at all: the help has been shown
    raise SystemExit(code if isinstance(code, int) else 0)


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """`["model.width=64", "model.norm=l2"]` as field path -> value; values are JSON or text.

    Raises:
        UserError: a text has no `=`.
    """
    settings = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise UserError(f"--set {text!r} is not FIELD=VALUE, as in model.width=64")
        settings[path] = _value(value)
    return settings


def nested(settings: Mapping[str, Any], root: str) -> dict[str, Any]:
    """The dotted settings below `root`, as nested mappings.

    Raises:
        UserError: a path does not start with model, recipe or corpus.
    """
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        head, _, rest = path.partition(".")
        if head not in ROOTS or not rest:
            raise UserError(
                f"field {path!r} does not start with {', '.join(f'{r}.' for r in ROOTS)}"
            )
        if head != root:
            continue
        *parents, leaf = rest.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[leaf] = value
    return tree


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None if text.lower() == "none" else text


def _refuse(message: str) -> NoReturn:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    raise SystemExit(2) from None
