"""Helpers for command lines: fast start and exit, one-line errors, FIELD=VALUE settings."""

import atexit
import contextlib
import errno
import gc
import json
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NoReturn

import pydantic

from lmzoo.base.config import explain
from lmzoo.base.errors import UserError, describe_error, in_own_code, near
from lmzoo.base.parts import install_command, missing_parts
from lmzoo.base.plain import Fields, FieldsDict, Texts
from lmzoo.base.stops import STOPS
from lmzoo.base.streams import echo, prepare_streams, printable, stdout_error

SECTIONS = ("model", "recipe", "corpus")
"""First components of setting paths."""
INTERNAL = 70
"""Exit code of an error that is not foreseen."""
TRACEBACK = "LMZOO_TRACEBACK"
"""The variable that shows where it is."""
LARGEST = 2**63
MOST = 10**9
"""Largest count of an option."""
MOST_OWNERS = 3
"""Commands that a line names."""
MOST_SEED = 10**15
"""Largest seed; 1000 * seed has 64 bits."""
OF_THE_MACHINE = {
    "EACCES",
    "EDQUOT",
    "EFBIG",
    "EIO",
    "EISDIR",
    "ELOOP",
    "EMFILE",
    "ENAMETOOLONG",
    "ENODEV",
    "ENOENT",
    "ENOSPC",
    "ENOTDIR",
    "EPERM",
    "EROFS",
}
"""Errors that are not a fault of the program."""


def run_app(app: Callable[..., Any], needs: Texts = ()) -> NoReturn:
    """Run a typer app and exit; `needs` are the parts of the installation that it uses.

    The exit code is 0 on success, 2 after invalid input, an error in the user's code or if stdout
    cannot be written, 130 after Ctrl-C, SIGTERM or SIGHUP, and 70 after any other error, in one
    line on stderr. A reader that ends changes nothing. 1 and 3 are answers, never an error.
    """
    with contextlib.ExitStack() as ending:
        ending.callback(_check_stdout)
        ending.enter_context(STOPS.installed())
        try:
            _run_app(app, needs)
        except Exception as error:
            # Not asked for, a traceback hides the line that helps.
            if os.environ.get(TRACEBACK):
                traceback.print_exc()
            text = printable(" ".join(describe_error(error).split()))
            where = "of lmzoo"
            code = INTERNAL
            if in_own_code(error):
                where = "in your code"
                code = 2
            sys.stderr.write(f"error {where}: {text}; {TRACEBACK}=1 shows its traceback\n")
            raise SystemExit(code) from None


def _run_app(app: Callable[..., Any], needs: Texts) -> NoReturn:
    # Skip the collection of all objects at exit, which takes 0.2 to 0.4 s.
    atexit.register(gc.freeze)
    try:
        prepare_streams()
        code = app(standalone_mode=False)
        if code == 130:  # typer makes it of a KeyboardInterrupt
            sys.stderr.write("stopped\n")
    except UserError as error:
        exit_with_error(str(error))
    except pydantic.ValidationError as error:
        exit_with_error(explain(error))
    except UnicodeEncodeError as error:
        # A lone surrogate: a fault of the program.
        if error.encoding == "utf-8":
            raise
        exit_with_error(f"{error.encoding} has no {error.object!a}; set PYTHONUTF8=1")
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        raise SystemExit(130) from None
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        # An extra of lmzoo, or a module of the user?
        extras = missing_parts(name, needs)
        if not extras:
            raise
        exit_with_error(f"{name} is missing; run: {install_command(extras)}")
    except OSError as error:
        if stdout_error():
            raise SystemExit(2) from None
        if errno.errorcode.get(error.errno or 0) not in OF_THE_MACHINE:
            raise
        where = ""
        if error.filename:
            where = f"{error.filename}: "
        exit_with_error(f"{where}{error.strerror}; see who may write there, and what is free")
    except Exception as error:
        if hasattr(error, "format_message"):
            _exit_with_usage_error(error)
        if not STOPS.requested.is_set():
            raise
        # A library took the interrupt for an error: numba, while it compiles.
        sys.stderr.write(f"stopped; {type(error).__name__}: {error}\n")
        raise SystemExit(130) from None
    if not isinstance(code, int):  # what the function of a command returned
        code = 0
    raise SystemExit(code)


def _exit_with_usage_error(error: Any) -> NoReturn:
    """Write an error of typer, whose classes are private, and exit."""
    message = error.format_message()
    # typer says what is wrong, but not the value.
    if isinstance(error.__cause__, pydantic.ValidationError):
        message += f", got {error.__cause__.errors()[0]['input']!r}"
    if message:
        said = _suggest(message, getattr(error, "ctx", None))
        exit_with_error(f"{said} (see --help)")
    raise SystemExit(2)  # called without arguments: typer has printed the help


def _suggest(message: str, context: Any) -> str:
    """Return the message of a usage error, with similar names if a name is unknown."""
    found = re.match(r"[Nn]o such (command|option):? '?([\w-]+)", message)
    if not found or context is None:
        return message
    kind, name = found.groups()
    if kind == "command":
        return f"no command {name!r}{near(name, context.command.list_commands(context))}"
    parameters = context.command.params
    options = [name for own in parameters for name in own.opts if name[0] == "-"]
    hint = near(name, options)
    # Nothing is similar: probably a field of the recipe, such as --lr.
    if hint.startswith("; known") and "--set" in options:
        field = name.lstrip("-").replace("-", "_")
        hint = f"; a field is set with --set recipe.{field}=VALUE or model.{field}=VALUE"
    owners = tomllib.loads(files("lmzoo.base").joinpath("flags.toml").read_text("utf-8"))
    if name in owners:
        hint = f"; lmzoo {' or '.join(owners[name][:MOST_OWNERS])} has it{hint}"
    return f"no option {name!r}{hint}"


def run_command(function: Callable[..., Any]) -> NoReturn:
    """Run a typer function as the command line of a script and exit; --help has its docstring."""
    import typer

    if "--help" in sys.argv:
        prepare_streams()
        echo(sys.modules[function.__module__].__doc__)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(function)
    run_app(app)


def parse_settings(texts: Sequence[str]) -> FieldsDict:
    """Parse `["model.width=64", "model.norm=l2"]` into a mapping from field path to value.

    A value is JSON where it parses as JSON, and text otherwise; `none` is None.
    """
    settings = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise UserError(f"--set {text!r} is not FIELD=VALUE, as in model.width=64")
        settings[path] = value
        if not path.endswith(".path"):  # a file may have the name 1
            settings[path] = _parse_value(value)
        if isinstance(settings[path], int) and abs(settings[path]) >= LARGEST:
            raise UserError(f"--set {path}: {value} is too large; an integer has at most 64 bits")
    return settings


def setting_text(path: str, value: Any) -> str:
    """Return the text that `parse_settings` reads as this value: JSON, or text that is not JSON."""
    if not isinstance(value, str) or _parse_value(value) != value:
        value = json.dumps(value)
    return f"{path}={value}"


def nest_settings(settings: Fields, section: str) -> FieldsDict:
    """Return the settings below `section` (model, recipe or corpus) as nested mappings."""
    tree = {}
    # A part comes before its fields.
    for path, value in sorted(settings.items(), key=lambda setting: setting[0].count(".")):
        head, _, rest = path.partition(".")
        if head not in SECTIONS or not rest:
            name = path
            if rest and head.lower() in SECTIONS:
                name = rest
            raise UserError(
                f"field {path!r} does not start with model., recipe., corpus.; a field of the "
                f"model is model.{name}, one of the training recipe.{name}"
            )
        if head == section:
            # The parents may be given by their names alone.
            parents = rest.split(".")
            leaf = parents.pop()
            node = tree
            for parent in parents:
                part = _fields_of(node.get(parent, {}), path)
                node[parent] = part
                node = part
            node[leaf] = value
    return tree


def _fields_of(part: Any, path: str) -> FieldsDict:
    """Return the fields of a part, which may be given by its name alone."""
    if isinstance(part, str):
        return {"name": part}
    if isinstance(part, Mapping):
        return dict(part)
    raise UserError(f"field {path!r}: {part!r} is not a part that has fields; set it once")


def _parse_value(text: str) -> Any:
    try:
        # Numbers, lists and true; the rest is text.
        return json.loads(text)
    except json.JSONDecodeError:
        if text.lower() == "none":
            return None
        return text


def _check_stdout():
    if sys.stdout is None:
        return
    error = stdout_error()
    if error:
        sys.stderr.write(f"error: stdout cannot be written: {error.strerror}\n")
        raise SystemExit(2) from None


def exit_with_error(message: str) -> NoReturn:
    """Print an error of the user in one line, and exit with code 2."""
    sys.stderr.write(f"error: {printable(' '.join(message.split()))}\n")
    raise SystemExit(2) from None
