"""`lmzoo sweep`: a shipped study, or the one in a file or a module of the user's."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from lmzoo.base.errors import UserError, near
from lmzoo.base.own_parts import import_source
from lmzoo.lab.cli.shipped import shipped_studies
from lmzoo.lab.study.study import Study
from lmzoo.lab.sweep.command import run_studies


def sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A study of the package, such as gru_ablation; a file with a STUDY or STUDIES; or the name of an importable module.")],
):  # fmt: skip
    """Run a study: `lmzoo sweep STUDY [OPTIONS]`, the same as `python STUDY.py [OPTIONS]`.

    The options that every study has: --epochs, --samples, --seeds, --until-decided, --max-seeds,
    --points, --corpus, --set FIELD=VALUE, --search-space FIELD=LOW:HIGH, --margin, --out, --device,
    --dry-run, --json. `lmzoo sweep STUDY --help` explains them all, and others.

    The exit code is 0 (done), 1 (runs failed), 2 (bad input), 70 (an error of lmzoo) or 130
    (stopped).
    """
    run_studies(find_studies(study))


def run(study: str, options: list[str]) -> NoReturn:
    """Run the command line of a study and exit."""
    found = find_studies(study)
    sys.argv = [study] + options
    run_studies(found)
    raise AssertionError("the command line of a study exits")


def find_studies(spec: str) -> tuple[Study, ...]:
    """Return the studies of a file or a module: its `STUDY`, its `STUDIES`, or all studies in it.

    A `UserError` says that it cannot be imported, or has no study.
    """
    # A file or a module of the user goes before a study of the package.
    if spec.isidentifier() and not Path(spec).exists() and find_spec(spec) is None:
        known = shipped_studies()
        if spec not in known:
            raise UserError(f"no study or module {spec!r}{near(spec, known)}")
        spec = str(known[spec])
    module = import_source(spec)
    study = getattr(module, "STUDY", None)
    if isinstance(study, Study):
        return (study,)
    values = getattr(module, "STUDIES", vars(module).values())
    studies = tuple(value for value in values if isinstance(value, Study))
    if not studies:
        raise UserError(f"{spec} has no study; write STUDY = Study(...)")
    return studies
