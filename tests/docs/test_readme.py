"""Every command of the README works: all in order in one folder (slow), and each one's options."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.run_lmzoo import run_lmzoo
from tests.docs.pages import ROOT, blocks

README = ROOT / "README.md"
SERVERS = ("lmzoo serve", "tensorboard")
"""Commands that end by Ctrl-C only."""
SHORT = "--points 'wild type,cut 6' --epochs 1 --samples 1 --seeds 3 --max-seeds 4"
"""What makes the sweeps of the test short; options of the README come after these and win."""
SCRIPT = """
import argparse, random
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
random.seed(parser.parse_args().seed)
print(random.gauss({mean}, 0.01))
"""
FILES = {
    "results.csv": "variant,seed,loss\n"
    + "".join(f"{v},{s},{1 + 0.1 * i + 0.01 * s}\n" for i, v in enumerate("ab") for s in range(5)),
    "train.py": SCRIPT.format(mean=1.0),
    "new.py": SCRIPT.format(mean=0.9),
    "my.py": "import torch\n\ndef score(tokens, lengths):\n"
    "    return torch.full(tokens.shape, 1 / 50).log()\n",
    "my_sentences.txt": "".join(f"word{i % 7} follows word{i % 11} here\n" for i in range(200)),
}


def commands() -> list[str]:
    """Return the commands of the blocks that a reader can execute, without their comments."""
    code = "".join(block.code for block in blocks(README) if block.kind == "sh")
    found = []
    # A backslash continues a line.
    for line in code.replace("\\\n", " ").splitlines():
        command = re.sub(r"\s+#.*$", "", line).strip()
        if command:
            found.append(command)
    return found


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}
    words = ["bash", "-c", command]
    env = os.environ | own
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("ray")
def test_all_commands_work_in_order_in_one_folder(tmp_path):
    for name in ("sweeps", "Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    study = next(block.code for block in blocks(README) if "main(STUDY)" in block.code)
    (tmp_path / "carry.py").write_text(study)
    # `make sweep` comes first, so what it leaves is there for all others.
    first = f"python sweeps/gru_ablation.py {SHORT}"
    failed = []
    for command in [first, "python carry.py --dry-run"] + commands():
        run = command
        expected = {0}
        if command.startswith("make "):
            run = f"make --dry-run {command.removeprefix('make ')}"
        elif command.startswith("source "):
            continue
        elif command.startswith("python sweeps/"):
            program, script, *options = command.split(maxsplit=2)
            run = " ".join([program, script, SHORT, *options])
        elif command.startswith(SERVERS):
            run = f"timeout --signal INT 20 {command}"
            expected = {124}
        elif command.startswith("lmzoo judge --base"):
            expected = {0, 1, 3}
        done = shell(run, tmp_path)
        if done.returncode not in expected or "Traceback" in done.stderr:
            failed.append(f"{run}: {done.returncode}\n{done.stdout[-800:]}\n{done.stderr[-800:]}")
    assert not failed, "\n".join(failed)


OF_LMZOO = {command for command in commands() if re.search("lmzoo |sweeps/", command)}


@pytest.mark.parametrize("command", sorted(OF_LMZOO))
def test_the_options_of_a_command_exist(command, monkeypatch):
    program, *words = shlex.split(command)
    # A command line is parsed before `--help` is obeyed.
    words.append("--help")
    if program == "lmzoo":
        assert run_lmzoo(*words) == 0
        return
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(words[0], run_name="__main__")
    assert stop.value.code == 0


def test_an_option_that_does_not_exist_is_seen():
    assert run_lmzoo("list", "--families", "x", "--help") == 2
