"""`lmzoo init` and the studies of the package: what is written runs as it is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.base.errors import UserError
from lmzoo.cli.main import COMPLETE
from lmzoo.lab.cli.shipped import shipped_cluster, shipped_studies
from lmzoo.lab.cli.sweep import find_studies
from tests.own_part_files import own_parts as own_parts

ROOT = Path(__file__).parents[2]


def run(*words: object, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lmzoo"]
    command += map(str, words)
    # Nothing of the environment of the tests.
    own = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin", "OMP_NUM_THREADS": "1"} | env
    return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)


@pytest.fixture
def said(own_parts, printed, monkeypatch):
    """What `lmzoo init gates` prints in the folder of the user."""
    monkeypatch.chdir(own_parts)
    return printed("init", "gates")


def test_the_files_of_init_are_a_study(said, own_parts, printed):
    *_, last = said.splitlines()
    assert last == "next: lmzoo check gates_cell.py, then lmzoo sweep gates.py"
    cluster = (own_parts / "gates_cluster.yaml").read_text("utf-8")
    assert "#   ray job submit --working-dir . -- lmzoo sweep gates.py" in cluster
    planned = printed("sweep", "gates.py", "--dry-run")
    assert "without gate: " in planned


@pytest.mark.usefixtures("said")
def test_init_overwrites_no_file(refused):
    assert "gates.py exists" in refused("init", "gates")


# As a file, each of the last three would hide a module of Python.
NO_NAMES = {"a b": "is not a word"} | dict.fromkeys(("class", "random", "torch"), "of Python")


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_no_study_can_have_is_refused(name, refused):
    assert NO_NAMES[name] in refused("init", name)


def test_the_studies_of_the_package_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scripts = {path.stem for path in (ROOT / "sweeps").glob("*.py")}
    assert set(shipped_studies()) == scripts
    (study,) = find_studies("gru_ablation")
    assert study.name == "gru_ablation"
    with pytest.raises(UserError, match="no study or module 'gru_ablatio'; near: gru_ablation"):
        find_studies("gru_ablatio")


def test_a_wheel_has_the_studies(tmp_path):
    build = [sys.executable, "-c", "import setuptools; exec(open('setup.py').read())"]
    copied = "setup.py pyproject.toml README.md LICENSE lmzoo sweeps clusters"
    for name in copied.split():
        (tmp_path / name).symlink_to(ROOT / name)
    build += ["build_py", "--build-lib", "out"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    shipped = tmp_path / "out/lmzoo/shipped_studies"
    onprem = (shipped / "onprem.yaml").read_text("utf-8")
    assert onprem == shipped_cluster()
    built = {path.stem for path in shipped.glob("*.py")}
    assert built == set(shipped_studies())


COMPLETED = {"lmzoo ran": "rank", "lmzoo rank --expl": "--explain"}


@pytest.mark.parametrize("line", COMPLETED)
def test_a_shell_completes_commands_and_options(line, tmp_path):
    place = str(line.count(" "))
    # What bash sets for a program that completes a line.
    asked = {COMPLETE: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place}
    done = run(folder=tmp_path, **asked)
    assert done.stdout.split() == [COMPLETED[line]]


def test_the_files_that_the_image_copies_exist():
    dockerfile = (ROOT / "Dockerfile").read_text()
    copies = re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE)
    names = " ".join(copies).split()
    assert {"lmzoo", "sweeps", "setup.py"} <= set(names)
    for name in names:
        assert (ROOT / name).exists()
    # All else is left out of what is sent to the builder.
    ignored = (ROOT / ".dockerignore").read_text()
    sent = re.findall(r"^!(.*)$", ignored, re.MULTILINE)
    assert sorted(sent) == sorted(names)
