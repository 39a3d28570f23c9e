"""The scripts and files of clusters: their commands run, and know their options."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ray.scripts.scripts import cli

from lmzoo.lab.study.study import Study, options
from lmzoo.lab.sweep.command import EXECUTION

ROOT = Path(__file__).parents[3]
FILES = [ROOT / "cluster.yaml", *sorted((ROOT / "clusters").iterdir())]
STUBS = {
    "python": f'exec {sys.executable} "$@"',
    "ray": """
        echo "ray $*" >> calls
        if [ "$RAY_TMPDIR" ]; then
          mkdir -p "$RAY_TMPDIR/ray"
          echo 10.0.0.1:6379 > "$RAY_TMPDIR/ray/ray_current_cluster"
        fi
        exec sleep 60""",
    "scontrol": 'echo "scontrol $*" >> calls',
    "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
}
"""Programs of a cluster, which note how they are called."""
STUDY = """
import os, signal, sys, time
assert os.environ["RAY_ADDRESS"] == "10.0.0.1:6379"
while "--address" not in open("calls").read():
    time.sleep(0.05)
if sys.argv[1:] == ["late"]:
    # SLURM signals the script before the time limit.
    os.kill(os.getppid(), signal.SIGUSR1)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
sys.exit(3)
"""


def check(command: str):
    """Fail unless Ray knows a command and its options."""
    _, name, *words = shlex.split(command)
    found = cli.commands[name]
    if name == "job":
        found = found.commands[words.pop(0)]
    found.make_context(name, words)


@pytest.mark.parametrize(("word", "code"), [("ends", 3), ("late", 130)])
def test_the_script_of_slurm_joins_the_nodes_and_ends_them(word, code, tmp_path):
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name, body in STUBS.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "study.py").write_text(STUDY)
    number = str(os.getpid())
    job = {"SLURM_JOB_ID": number, "SLURM_CPUS_PER_TASK": "2", "SLURM_NNODES": "2"}
    script = ["bash", str(ROOT / "clusters/slurm.sh"), "study.py", word]
    done = subprocess.run(script, cwd=tmp_path, env=os.environ | job, check=False, timeout=60)
    assert done.returncode == code
    head, worker, *others = (tmp_path / "calls").read_text().splitlines()
    check(head)
    check(worker)
    assert (f"scontrol requeue {number}" in others) == (word == "late")
    assert not list(Path("/tmp").glob(f"tmp.*-lmzoo-{number}"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_commands_files_and_options_are_those_of_today(file):
    text = file.read_text()
    if file.suffix == ".yaml":
        commands = re.findall(r"\sray [a-z][^#;>\n]{5,}(?:\n +--.*)*", text)
        assert commands
        for command in commands:
            check(command)
    for path in re.findall(r"(?:analysis|clusters|docs|sweeps)/[\w/]+\.\w+", text):
        assert (ROOT / path).is_file()
    known = {option.flag for option in options(Study).values()}
    known |= {f"--{name.replace('_', '-')}" for name in EXECUTION}
    for given in re.findall(r"sweeps/\w+\.py ([^#\n]*)", text):
        assert known.issuperset(re.findall(r"--[\w-]+", given))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras["optional-dependencies"].keys() >= set(re.findall(r'"\.?\[(\w+)\]"', text))


def test_the_image_has_the_files_of_the_other_clusters():
    copied = re.findall(r"^COPY --chown=ray (.+) \S+$", FILES[1].read_text(), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
