"""`lmzoo sweep`: the study in a file or a module, inside or outside the package."""

import sys
from typing import Annotated, NoReturn

import typer

from lmzoo.errors import UserError
from lmzoo.plugins import import_source
from lmzoo.study.study import Study
from lmzoo.sweep.command import run_study


def sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY.py", help="A file with a STUDY, or the name of an importable module.")],
) -> None:  # fmt: skip
    """Run a study: `lmzoo sweep STUDY.py [OPTIONS]`.

    The same as `python STUDY.py [OPTIONS]`. `lmzoo sweep STUDY.py --help` lists the options.
    """
    run_study(find_study(study))


def run(study: str, options: list[str]) -> NoReturn:
    """Run the command line of a study and exit."""
    found = find_study(study)
    sys.argv = [study, *options]
    run_study(found)
    raise AssertionError("the command line of a study exits")


def find_study(spec: str) -> Study:
    """Return the study of a file or a module: its `STUDY`, or the only study in it.

    Raises:
        UserError: The module cannot be imported, or has no study.
    """
    module = import_source(spec)
    studies = [value for value in vars(module).values() if isinstance(value, Study)]
    study = getattr(module, "STUDY", studies[0] if len(studies) == 1 else None)
    if not isinstance(study, Study):
        raise UserError(f"{spec} has {len(studies)} studies and no STUDY; write STUDY = Study(...)")
    return study
