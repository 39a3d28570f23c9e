"""`lmzoo judge` on a file of results, from a pipe, and as an action of GitHub."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases

EXAMPLE = "docs/assets/judge/results.csv"
OPTIONS = ("--by", "variant", "--seed", "seed", "--metric", "loss", "--margin", "0.02")


def test_judge_prints_json(lmzoo):
    code, out, err = lmzoo("judge", EXAMPLE, OPTIONS, "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert err == ""
    assert {row["variant"]: row["verdict"] for row in rows}["wider"] == "better"


@cases("lab/cli/cases.toml", "bad_judgements", "arguments, word")
def test_bad_arguments_are_one_line(refused, arguments, word):
    assert word in refused("judge", arguments)


def test_judge_reads_a_pipe():
    command = [sys.executable, "-m", "lmzoo", "judge", "-", *OPTIONS]
    found = subprocess.run(command, input=Path(EXAMPLE).read_text(), capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "24 rows read: 24 counted" in found.stdout


def run_action(folder: Path, arguments: str, fail_on: str = "1") -> tuple[int, str, str]:
    """Run the shell steps of the action as a runner does; return code, summary and output."""
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load(Path(".github/actions/judge/action.yml").read_text())
    values = {
        "${{ inputs.arguments }}": arguments, "${{ inputs.fail-on }}": fail_on,
        "${{ github.action_path }}": str(Path(".github/actions/judge").resolve()),
    }  # fmt: skip
    folder.mkdir()
    for name, text in (("python", "exit 0"), ("lmzoo", f'exec {sys.executable} -m lmzoo "$@"')):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        # They stand for what the action installs and calls.
        (folder / name).chmod(0o755)
    summary = folder / "summary"
    output = folder / "output"
    given = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(output)}
    code = 0
    for step in action["runs"]["steps"]:
        own: dict[str, Any] = {name: values[text] for name, text in step["env"].items()}
        env = {**os.environ, **given, **own, "PATH": f"{folder}:{os.environ['PATH']}"}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        code = subprocess.run(words, env=env, capture_output=True).returncode
        if code:
            break
    return code, summary.read_text(), output.read_text()


def test_the_action_writes_the_verdict_and_its_account(tmp_path):
    code, summary, output = run_action(tmp_path / "a", "\n".join([EXAMPLE, *OPTIONS, ""]))
    assert code == 0
    assert output == "code=0\n"
    assert summary.startswith("### 3 contrasts with 'base': 1 better, 1 negligible, 1 worse\n")
    assert "| wider | better |" in summary
    assert "24 rows read: 24 counted" in summary
    commands = "--base=echo 1.0{seed}\n--candidate=echo 2.1{seed}{seed}\n"
    commands += f"--lower-is-better\n--out={tmp_path}/o"
    for fail_on, expected in (("1", 1), ("3", 0)):
        code, summary, output = run_action(tmp_path / fail_on, commands, fail_on)
        assert code == expected, summary
        assert output == "code=1\n", summary
        assert summary.startswith("### discard: worse: difference +1")
        assert "12 runs read: 12 counted" in summary
    for number, title in enumerate(
        (f"$(touch {tmp_path}/x)", f"`touch {tmp_path}/x`", "; touch x")
    ):
        text = f"{EXAMPLE}\n--by={title}\n--metric=' --out \"'"
        assert run_action(tmp_path / f"b{number}", text)[0] == 2
    # No title was executed by the shell.
    assert not (tmp_path / "x").exists()
