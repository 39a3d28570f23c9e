"""Two commands: decisions and exit codes, looks, resumption, revisions, errors."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.commands import Arm, Metric, Results, judge_commands

TRAIN = """
import json, pathlib, random, sys
effect, seed = float(sys.argv[1]), int(sys.argv[2])
pathlib.Path("count").open("a").write("x")
if effect == 9: sys.exit("boom")
if effect == 7: print('{"valid": true}'); sys.exit()
if effect == 8 and seed > 1: print('{"valid": NaN}'); sys.exit()
common, own = random.Random(seed), random.Random(f"{effect} {seed}")
print("step 1")
print(json.dumps({"valid": 7.0}))
print(json.dumps({"valid": 1 + effect + common.gauss(0, 0.3) + own.gauss(0, 0.01)}))
print("done 5")
"""
SEEDS = "{seed}"


@pytest.fixture
def call(lmzoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)

    def judge(effect: float, *options: object, metric: tuple[str, ...] = ("--metric", "valid")):
        commands = [f"{sys.executable} train.py {own:g} {SEEDS}" for own in (0, effect)]
        return lmzoo("judge", "--base", commands[0], "--candidate", commands[1], *metric, *options)

    return judge


@pytest.mark.parametrize(
    ("effect", "options", "code", "word"),
    [
        (-0.3, (), 0, "keep"),
        (0.3, (), 1, "discard"),
        (-0.3, ("--higher-is-better",), 1, "discard"),
        (0.0001, ("--margin", "0.2"), 1, "discard"),
        (0.0001, ("--max-seeds", "2"), 3, "undecided"),
        (-0.3, ("--budget", "0"), 3, "undecided"),
    ],
)
def test_the_decision_is_the_exit_code(call, effect, options, code, word) -> None:
    found, out, _ = call(effect, *options)
    assert (found, out.split(":")[0]) == (code, word)
    found, out, _ = call(effect, *options, "--json")
    assert (found, json.loads(out)["decision"]) == (code, word)


def test_a_clear_answer_needs_no_more_than_the_first_look(call) -> None:
    code, _, err = call(-0.3, "--max-seeds", "24")
    assert (code, "warning" in err) == (0, False)
    assert len(Path("count").read_text()) == 6


def test_a_killed_judge_goes_on_from_its_runs(call) -> None:
    whole = call(0.0005, "--max-seeds", "6", "--json", "--out", "whole")[1]
    file = Path("whole/runs.jsonl")
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:5], lines[5][:20]]))  # killed while it wrote
    Path("count").unlink()
    assert call(0.0005, "--max-seeds", "6", "--json", "--out", "whole")[1] == whole
    assert len(Path("count").read_text()) == 12 - 5


def test_another_metric_or_an_edited_script_is_another_run(call) -> None:
    call(-0.3)
    assert "no JSON line has the key 'vald'" in call(-0.3, metric=("--metric", "vald"))[2]
    Path("train.py").write_text(TRAIN.replace("1 + effect", "1 - effect"))
    assert call(-0.3)[0] == 1


def test_the_metric_is_found_by_a_pattern_or_in_the_last_line(call) -> None:
    assert Metric(pattern=r"a=(\d+)").read("a=12\na=34", "") == 34
    assert Metric(pattern=r"a=(\d+)(\d)").read("a=12\n", "a=345") == 34
    assert call(-0.3, metric=("--pattern", r"valid\D+([0-9.]+)"))[0] == 0
    code, _, err = call(-0.3, metric=())
    assert code == 2
    assert "the metric is 'done 5', not a number" in err


def test_a_candidate_that_diverges_is_not_kept(call) -> None:
    code, out, _ = call(8, "--max-seeds", "12")
    assert code == 1
    assert "diverged: 0 of base" in out


def test_failing_commands_and_bad_options_are_one_line(call, lmzoo) -> None:
    for (code, out, err), word in (
        (call(9), "candidate, seed 1: exit code 1: boom"),
        (call(-0.3, "--max-seeds", "1"), "--max-seeds 1"),
        (call(-0.3, "--budget", "nan"), "a budget of nan minutes"),
        (call(-0.3, metric=("--metric", "vali")), "no JSON line has the key 'vali'; near: valid"),
        (call(7), "the metric is 'True', not a number"),
        (call(-0.3, "--margin", "-1"), "margin -1.0"),
        (call(-0.3, metric=("--pattern", "(")), "no regular expression"),
        (call(-0.3, metric=("--pattern", "x")), "0 groups"),
        (call(-0.3, "--base-rev", "nothing"), "git revision 'nothing'"),
        (lmzoo("judge", "--base", "true", "--candidate", "false"), "no {seed}"),
        (lmzoo("judge", "--base", "true {seed}", "--candidate", "true {seed}"), "the same command"),
        (lmzoo("judge", "--base", "true {seed}"), "--candidate"),
        (lmzoo("judge", "--base", "true {seed}", "--candidate", "echo {seed}"), "printed nothing"),
    ):
        lines = [line for line in err.splitlines() if line.startswith("error")]
        assert (code, out, len(lines)) == (2, "", 1)
        assert word in lines[0]
        assert "Traceback" not in err


def test_a_run_ends_with_its_process_and_colours_are_no_text(lmzoo, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    show = "sleep 60 & printf '\\033[1;31mloss\\033[0m: \\033]8;;x\\033\\\\%s\\033[0m\\n'"
    commands = (f"{show} {SEEDS}.2{SEEDS}", f"{show} {SEEDS}.1")
    options = ("--pattern", "^loss: ([0-9.]+)$", "--max-seeds", "3")
    begun = time.monotonic()
    found = lmzoo("judge", "--base", commands[0], "--candidate", commands[1], *options)
    assert found[0] == 0, found
    assert time.monotonic() - begun < 20


def damage(folder: Path, rng: random.Random) -> None:
    """Damage a file as a power loss, a full disk or a tool of another kind does."""
    files = sorted(folder.glob("*.json*"))
    if not files:
        return
    file = rng.choice(files)
    text = file.read_bytes()
    place = rng.randrange(len(text) + 1)
    byte = bytes([rng.randrange(256)])
    kinds = (
        lambda: text[:place],
        lambda: b"",
        lambda: text[:place] + byte + text[place + 1 :],
        lambda: text[:place] + text[place + rng.randrange(1, 9) :],
        lambda: (
            text + rng.choice((b'{"arm": 3}\n', b"[]\n", b"null", b"\0\0\0\n", b'{"value": 1}'))
        ),
        lambda: text.replace(b"1", b"7"),
    )
    file.write_bytes(rng.choice(kinds)())


def series(folder: Path, case: int, kill: random.Random | None) -> list[str]:
    """Judge three candidates in one folder; return their decisions, `refused` from a refusal on."""
    effects = [random.Random(f"{case} {i}").choice((-0.3, -0.02, 0.0, 0.02, 0.3)) for i in range(3)]
    decisions: list[str] = []
    for number, effect in enumerate(effects):
        base = Arm("base", f"base {SEEDS}", folder, Metric())
        candidate = Arm("candidate", f"candidate {number} {SEEDS}", folder, Metric())
        left = kill.randrange(12) if kill else 99

        def run(self: Arm, seed: int, effect: float = effect, number: int = number) -> float:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            own = random.Random(f"{case} {self.command} {seed}").gauss(0, 0.02)
            common = random.Random(f"{case} {seed}").gauss(1, 0.3)
            return common + own + effect * (self.name == "candidate")

        for _ in range(9):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Arm, "run", run)
                try:
                    answer = judge_commands(
                        base, candidate, Results(folder), max_seeds=12, margin=0.01 * (case % 3),
                        stream=case % 2 == 0,
                    )  # fmt: skip
                except KeyboardInterrupt:
                    left = kill.randrange(30) if kill else 99
                except UserError:
                    return [*decisions, *["refused"] * (3 - number)]
                else:
                    decisions.append(answer["decision"])
                    break
            if kill and kill.random() < 0.3:
                damage(folder, kill)
        else:
            return [*decisions, *["refused"] * (3 - number)]
        if kill and kill.random() < 0.15:
            damage(folder, kill)
    return decisions


def test_a_judgement_that_was_killed_and_damaged_decides_as_the_whole_one_or_not(
    tmp_path: Path,
) -> None:
    refused = 0
    for case in range(100):
        whole = series(tmp_path / f"{case} whole", case, None)
        found = series(tmp_path / f"{case} damaged", case, random.Random(case))
        refused += found.count("refused")
        for one, other in zip(found, whole, strict=True):
            assert one in ("refused", other), (case, found, whole)
    assert refused < 150  # most are decided


def test_equal_results_need_no_seeds_and_no_terminal(lmzoo, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = ("--base", "cat; echo 1 # {seed}", "--candidate", f"echo 1 # {300 * 'x'} {{seed}}")
    code, out, err = lmzoo("judge", *commands, "--max-seeds", "3", "--higher-is-better")
    assert (code, out) == (3, "undecided: difference +0 (0 to 0), p 1, 3 pairs of seeds\n")
    assert "warning: base and candidate: every seed has the same result" in err
    assert lmzoo("judge", *commands, "--margin", "0.1")[0] == 1


@pytest.mark.parametrize(("extra", "sign"), [((), 1), (("--higher-is-better",), -1)])
def test_the_answer_of_two_looks_is_that_of_scipy(
    extra, sign, lmzoo, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = np.array([3.1, 2.1, 4.3, 3.0, 1.8, 4.2])  # seeds share nearly all of the variance
    change = np.array([0.02, 0.3, 0.13, 0.16, 0.14, 0.15])
    arms = [
        f"echo {' '.join(map(str, x))} | cut -d' ' -f{SEEDS}" for x in (base, base - sign * change)
    ]
    options = ("--base", arms[0], "--candidate", arms[1], "--max-seeds", "6", "--margin", "0.05")
    code, out, _ = lmzoo("judge", *options, *extra, "--json")
    answer, better = json.loads(out), -sign * change
    looks = [stats.ttest_1samp(better[:n], 0) for n in (3, 6)]  # each look has half of the error
    numbers = [answer.pop(name) for name in ("difference", "low", "high", "p")]
    low, high = looks[1].confidence_interval(0.95)  # of the last look
    assert numbers == pytest.approx([better.mean(), low, high, 2 * looks[1].pvalue])
    assert (code, answer) == (0, {
        "decision": "keep", "verdict": "better-open", "margin": 0.05, "seeds": [6, 6],
        "diverged": [0, 0], "seeds_needed": None, "out_of_time": False,
    })  # fmt: skip


def test_two_revisions_of_one_command(lmzoo, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "init", "-q"], check=True)
    for text in (TRAIN, TRAIN.replace("1 + effect", "0.5 + effect")):
        Path("train.py").write_text(text)
        subprocess.run([*git, "add", "train.py"], check=True)
        subprocess.run([*git, "commit", "-qm", "x"], check=True)
    Path("train.py").write_text("broken")
    command = f"{sys.executable} train.py 0 {SEEDS}"
    revisions = ("--base-rev", "HEAD~1", "--candidate-rev", "HEAD")
    code, out, err = lmzoo("judge", "--base", command, *revisions, "--metric", "valid")
    assert code == 0, err
    assert out.startswith("keep")
    trees = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True).stdout
    assert len(trees.splitlines()) == 1
    assert len(Results(Path("judge-runs"))._values) == 6
