"""The command `lmzoo`, which imports only the module of the requested subcommand."""

import functools
import importlib
import inspect
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from lmzoo.base.command_line import run_app
from lmzoo.base.memory import gc_disabled
from lmzoo.base.own_parts import TRUST, import_plugins
from lmzoo.base.version import __version__

PLUGINS = Annotated[list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="Import parts of your own from a file or module; repeatable.")]  # fmt: skip
TRUST_CODE = Annotated[bool, typer.Option("--trust", help="Run the code that a run of another account brings.")]  # fmt: skip
COMPLETE = "_LMZOO_COMPLETE"
TABLE = tomllib.loads(Path(__file__).with_name("commands.toml").read_text("utf-8"))
WITHOUT_PLUGINS = TABLE["without_plugins"]
"""Modules whose commands take no parts of the user."""
PANELS: dict[str, dict[str, list[str]]] = TABLE["panels"]
"""Panel of `lmzoo --help` -> subcommand -> its function, and its line in that list."""
COMMANDS = PANELS["Ask a question"] | PANELS["Models"] | PANELS["More"]
CODES = (
    "The exit code is 0, unless said otherwise above; 2 for bad input, 70 for an error of lmzoo, "
    "130 if it was stopped."
)


def print_version(is_asked: bool):  # noqa: FBT001
    """Print the version and exit if `--version` is given."""
    if is_asked:
        typer.echo(f"lmzoo {__version__}")
        raise typer.Exit


def build_app(command: str) -> typer.Typer:
    """Return the command line in which `command` can run; the others are only listed."""
    app = typer.Typer(
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        help="Train, inspect and compare small sequence models.",
        callback=_global_options,
    )
    for panel, commands in PANELS.items():
        for name, (path, summary) in commands.items():
            module, _, function = path.partition(":")
            if name == command:
                # Imports make many objects, of which few are garbage.
                with gc_disabled():
                    run = getattr(importlib.import_module(module), function)
                # Commands on records import no models.
                if module not in WITHOUT_PLUGINS:
                    run = with_own_parts(run)
                app.command(name, rich_help_panel=panel, epilog=CODES)(run)
            else:
                app.command(name, help=summary, rich_help_panel=panel)(lambda: None)
    return app


def _global_options(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version)] = False,
):  # fmt: skip
    """Options before the subcommand."""


def with_own_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a subcommand with the options --plugin and --trust."""

    @functools.wraps(function)
    def command(
        *args: Any, plugins: list[str] | None = None, trust: bool = False, **options: Any
    ) -> Any:
        if trust:
            os.environ[TRUST] = "1"
        import_plugins(plugins)
        return function(*args, **options)

    # typer reads the options from the signature and from the annotations.
    signature = inspect.signature(function)
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter("plugins", keyword, default=None, annotation=PLUGINS),
        inspect.Parameter("trust", keyword, default=False, annotation=TRUST_CODE),
    ]
    parameters = list(signature.parameters.values()) + options
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    annotations = {option.name: option.annotation for option in options}
    command.__annotations__ = function.__annotations__ | annotations
    return command


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    given = sys.argv[1:]
    if given[:1] == ["sweep"] and len(given) > 1 and not given[1].startswith("-"):
        # The options of a sweep are those of the study, which typer cannot know.
        from lmzoo.lab.cli.sweep import run

        run_app(lambda **_: run(given[1], given[2:]), needs=("zoo", "sweeps"))
    # The value of --best may be missing, which typer does not know.
    for place, word in enumerate(sys.argv):
        following = "".join(sys.argv[place + 1 : place + 2])
        if word == "--best" and following[:1] in ("", "-"):
            sys.argv[place] = "--best="
    words = sys.argv
    if COMPLETE in os.environ:  # a shell that asks for completions passes the words of its line
        words = os.environ.get("COMP_WORDS", "").split()
    command = "".join(words[1:2])
    # Commands on models need torch; the others run without it.
    needs = ()
    if command in COMMANDS and COMMANDS[command][0].startswith("lmzoo.cli."):
        needs = ("zoo",)
    run_app(functools.partial(_run, command), needs=needs)


def _run(command: str, **options: Any) -> Any:
    return build_app(command)(prog_name="lmzoo", **options)
