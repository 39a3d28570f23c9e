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
    command = [sys.executable, "-m", "lmzoo", *map(str, words)]
    own = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin", "OMP_NUM_THREADS": "1", **env}
    return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)


def test_the_files_of_init_are_a_study(own_parts, lmzoo, refused, monkeypatch):
    monkeypatch.chdir(own_parts)
    said = "next: lmzoo check gates_cell.py, then lmzoo sweep gates.py"
    assert lmzoo("init", "gates")[1].splitlines()[-1] == said
    cluster = (own_parts / "gates_cluster.yaml").read_text("utf-8")
    assert "#   ray job submit --working-dir . -- lmzoo sweep gates.py" in cluster
    code, planned, _ = lmzoo("sweep", "gates.py", "--dry-run")
    assert code == 0
    assert "without gate: " in planned
    assert "gates.py exists" in refused("init", "gates")
    assert "is not a word" in refused("init", "a b")
    for taken in ("class", "random", "torch"):  # as a file, each would hide a module of Python
        assert "a module of Python" in refused("init", taken)


def test_the_studies_of_the_package_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert set(shipped_studies()) == {path.stem for path in (ROOT / "sweeps").glob("*.py")}
    (study,) = find_studies("gru_ablation")
    assert study.name == "gru_ablation"
    with pytest.raises(UserError, match="no study or module 'gru_ablatio'; near: gru_ablation"):
        find_studies("gru_ablatio")


def test_a_wheel_has_the_studies(tmp_path):
    build = [sys.executable, "-c", "import setuptools; exec(open('setup.py').read())"]
    copied = "setup.py pyproject.toml README.md LICENSE lmzoo sweeps clusters"
    for name in copied.split():
        (tmp_path / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [*build, "build_py", "--build-lib", "out"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    onprem = (tmp_path / "out/lmzoo/shipped_studies/onprem.yaml").read_text("utf-8")
    assert onprem == shipped_cluster()
    built = {path.stem for path in (tmp_path / "out/lmzoo/shipped_studies").glob("*.py")}
    assert built == set(shipped_studies())


def test_a_shell_completes_commands_and_options(tmp_path):
    for line, offered in (("lmzoo ran", "rank"), ("lmzoo rank --expl", "--explain")):
        place = str(line.count(" "))
        asked = {COMPLETE: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place}
        assert run(folder=tmp_path, **asked).stdout.split() == [offered]


def test_the_files_that_the_image_copies_exist():
    copies = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    names = [name for line in copies for name in line.split()]
    assert {"lmzoo", "sweeps", "setup.py"} <= set(names)
    assert all((ROOT / name).exists() for name in names)
    sent = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(sent) == sorted(names)
