"""`lmzoo init NAME`: a study and a cell of the user's own, which run as they are, and a cluster file.

The cluster file is `clusters/onprem.yaml` with another installation: outside of a clone there is no
source to copy to the machines, so they get the wheel.
"""

import keyword
import re
import shlex
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.base.errors import UserError, writing
from lmzoo.base.streams import echo
from lmzoo.lab.cli.shipped import shipped_cluster

CLUSTER = "{}_cluster.yaml"
INSTALLED = (
    (
        r"(?<=file_mounts:\n)(  ~/lmzoo/.*\n)+",
        "  ~/lmzoo/wheel: wheel    # <-- a folder with the wheel of lmzoo\n",
    ),
    (
        r"-c ~/lmzoo/constraints.txt -e ~/lmzoo\"\[cluster\]\"",
        '"$(echo ~/lmzoo/wheel/*.whl)[cluster]"',
    ),
    (r"in the root of the repository", "in this folder"),
    (
        r"docs/tutorials/cluster.md explains how it works.",
        "`pip wheel --no-deps -w wheel CLONE` makes the wheel.",
    ),
)
"""Text of `clusters/onprem.yaml` -> what a folder outside of a clone needs."""


def init(
    name: Annotated[str, typer.Argument(help="Name of the study, a word such as my_study.")],
    folder: Annotated[Path, typer.Option(help="Where the files are written.")] = Path(),
):
    """Write NAME.py, a study, NAME_cell.py, a cell that it compares, and NAME_cluster.yaml.

    The first two run as they are: change the equation of the cell and the points of the study. The
    cluster file is for machines that SSH reaches; enter their addresses.
    """
    # The study imports the cell by this name.
    if not name.isidentifier():
        raise UserError(f"name {name!r} is not a word of letters, digits and _, such as my_study")
    study = folder / f"{name}.py"
    cell = folder / f"{name}_cell.py"
    cluster = folder / CLUSTER.format(name)
    for path in (study, cell, cluster):
        if path.exists():
            raise UserError(f"{path} exists; choose another name, or delete the file")
    # Last: the files of an earlier call are modules, too.
    if keyword.iskeyword(name) or find_spec(name):
        raise UserError(f"{name!r} is a word or a module of Python; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    starter = files("lmzoo.cli.starter")
    for path, source in ((study, "study.py"), (cell, "cell.py")):
        text = starter.joinpath(source).read_text("utf-8")
        _write(path, text.replace("my_study", name))
    _write(cluster, cluster_file(name))
    echo(f"{study}\n{cell}\n{cluster}")
    next_check = f"lmzoo check {shlex.quote(str(cell))}"
    echo(f"next: {next_check}, then lmzoo sweep {shlex.quote(str(study))}")


def cluster_file(name: str) -> str:
    """Return the cluster file of the study NAME.py."""
    text = shipped_cluster().replace("clusters/onprem.yaml", CLUSTER.format(name))
    text = text.replace("python sweeps/gru_ablation.py", f"lmzoo sweep {name}.py")
    for pattern, replacement in INSTALLED:
        text, count = re.subn(pattern, lambda _, new=replacement: new, text)
        # The cluster file has changed, and this table has not.
        assert count, pattern
    return text


def _write(path: Path, text: str):
    with writing(path):
        path.write_text(text, encoding="utf-8")
