"""`lmzoo check`: do the parts in a file obey the laws of the zoo?"""

import json
from typing import Annotated

import torch
import typer
from rich.console import Console

from lmzoo.base.errors import UserError, describe_error
from lmzoo.base.own_parts import import_source
from lmzoo.base.streams import echo
from lmzoo.lab.cli.tables import AsJson
from lmzoo.laws_of_training.parts import Check, checks


def check(
    source: Annotated[str, typer.Argument(metavar="FILE.py", help="A file, the folder of a package, or a module.")],
    failures: Annotated[bool, typer.Option("--failures", help="Print only the laws that do not hold.")] = False,
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """Run the laws on every cell, emission, normaliser, model and corpus that a file registers.

    One line for each law. The exit code is 1 if a law does not hold.
    """
    if not __debug__:
        raise UserError("laws are assertions, which `python -O` removes; run python without -O")
    found = list(checks(import_source(source).__name__))
    if not found:
        raise UserError(
            f"{source} registers no part; a part has a decorator such as @CELLS(name); "
            f"a study is tried by `lmzoo sweep {source} --dry-run`"
        )
    # A person reads each law as it is tested, a program all of them at the end.
    console = Console(highlight=False, soft_wrap=True, quiet=as_json)
    rows = []
    failed = 0
    for item in found:
        fault = _fault(item)
        if fault:
            failed += 1
        elif failures:
            continue
        rows.append({"part": item.part, "law": item.name, "holds": not fault, "fault": fault})
        line = f"{item.part}: {item.name}"
        if fault:
            console.print("[red]fails[/]", end="  ")
            line = f"{line}: {fault}"
        else:
            console.print("[green]holds[/]", end="  ")
        console.print(line, markup=False)
    console.print(f"{len(found)} laws, {failed} do not hold")
    if as_json:
        echo(json.dumps(rows, indent=1))
    return int(failed > 0)


def _fault(item: Check) -> str:
    try:
        # A part that draws must not change the law after it.
        with torch.random.fork_rng(devices=[]):
            item.run()
    except AssertionError as error:
        line = str(error).partition("\n")[0]
        if not line:
            return "the assertion fails"
        return line
    except Exception as error:  # the part itself fails
        return describe_error(error)
    return ""
