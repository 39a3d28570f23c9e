"""`lmzoo sweep`: the study in a file or a module, inside or outside the package."""

import sys
from typing import Annotated, NoReturn

import typer

from lmzoo.errors import UserError
from lmzoo.own_parts.importing import import_source
from lmzoo.study.study import Study
from lmzoo.sweep.command import run_studies


def sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY.py", help="A file with a STUDY or STUDIES, or the name of an importable module.")],
) -> None:  # fmt: skip
    """Run a study: `lmzoo sweep STUDY.py [OPTIONS]`.

    The same as `python STUDY.py [OPTIONS]`. `lmzoo sweep STUDY.py --help` lists the options.
    """
    run_studies(find_studies(study))


def run(study: str, options: list[str]) -> NoReturn:
    """Run the command line of a study and exit."""
    found = find_studies(study)
    sys.argv = [study, *options]
    run_studies(found)
    raise AssertionError("the command line of a study exits")


def find_studies(spec: str) -> tuple[Study, ...]:
    """Return the studies of a file or a module: its `STUDY`, its `STUDIES`, or all studies in it.

    Raises:
        UserError: The module cannot be imported, or has no study.
    """
    module = import_source(spec)
    if isinstance(study := getattr(module, "STUDY", None), Study):
        return (study,)
    values = getattr(module, "STUDIES", vars(module).values())
    studies = tuple(value for value in values if isinstance(value, Study))
    if not studies:
        raise UserError(f"{spec} has no study; write STUDY = Study(...)")
    return studies
