"""Two commands: decisions and exit codes, looks, resumption, errors."""

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lmzoo.base import environment
from lmzoo.base.errors import UserError
from lmzoo.lab.judging.commands import RUN_KEYS, Arm, Metric, Results, judge_commands
from lmzoo.lab.store.opened import SEEN
from tests.cases import cases

TRAIN = """
import json, pathlib, random, sys
effect, seed = float(sys.argv[1]), int(sys.argv[2])
pathlib.Path("count").open("a").write("x")
if effect == 8 and seed > 1: print('{"valid": NaN}'); sys.exit()
common, own = random.Random(seed), random.Random(f"{effect} {seed}")
print("step 1")
print(json.dumps({"valid": 7.0}))
print(json.dumps({"valid": 1 + effect + common.gauss(0, 0.3) + own.gauss(0, 0.01)}))
print("done 5")
"""
SEEDS = "{seed}"


@pytest.fixture
def call(lmzoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)

    def judge(effect: float, *options: object, metric: tuple[str, ...] = ("--metric", "valid")):
        options = options if "--higher-is-better" in options else ("--lower-is-better", *options)
        commands = [f"{sys.executable} train.py {own:g} {SEEDS} count" for own in (0, effect)]
        return lmzoo("judge", "--base", commands[0], "--candidate", commands[1], *metric, *options)

    return judge


@cases("lab/judging/commands.toml", "decisions", "effect, options, code, word")
def test_the_decision_is_the_exit_code(call, effect, options, code, word):
    found, out, _ = call(effect, *options)
    assert (found, out.split(":")[0]) == (code, word)
    found, out, _ = call(effect, *options, "--json")
    answer = json.loads(out)
    assert (found, answer["decision"]) == (code, word)
    assert answer["out_of_time"] == ("--budget" in options)


def test_a_clear_answer_needs_the_first_look_and_as_many_fresh_seeds(call):
    code, _, err = call(-0.3, "--max-seeds", "24")
    assert (code, "warning" in err) == (0, False)
    assert len(Path("count").read_text()) == 2 * (3 + 3)


def test_a_killed_judge_goes_on_from_its_runs(call):
    whole = call(0.0005, "--max-seeds", "6", "--json", "--out", "whole")[1]
    file = Path("whole/runs.jsonl")
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:5], lines[5][:20]]))  # killed while it wrote
    Path("count").unlink()
    assert call(0.0005, "--max-seeds", "6", "--json", "--out", "whole")[1] == whole
    assert len(Path("count").read_text()) == 12 - 5


def test_an_edited_script_is_another_run(call):
    call(-0.3)
    Path("train.py").write_text(TRAIN.replace("1 + effect", "1 - effect"))
    assert call(-0.3)[0] == 1


def test_a_file_that_a_command_has_read_is_a_part_of_it(call, tmp_path):
    text = TRAIN.replace("count", "other").replace("1 + effect", "int(open('x').read()) + effect")
    Path("train.py").write_text(text)
    for value in (1, 31, 1):
        Path("x").write_text(str(value))
        err = call(-0.3)[2]
        assert ("base is measured again: x has changed" in err) == (value == 31)
    rows = Path("judge-runs/runs.jsonl").read_text().splitlines()
    values = [json.loads(row)["value"] for row in rows]
    assert [float(value) > 20 for value in values] == [False] * 12 + [True] * 12


def test_a_package_of_a_helper_is_a_part_of_it(tmp_path, monkeypatch):
    """One that is upgraded while the judge runs is an error."""
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    facts = tmp_path / "site-packages/tinypkg.dist-info/METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text("Name: tinypkg\nVersion: 1\n")
    (tmp_path / "site-packages/tinypkg.py").write_text("")
    (tmp_path / "helper.py").write_text("import tinypkg\nprint(3)")
    (tmp_path / "train.py").write_text(
        "import sys\nsys.path.append('site-packages')\nimport helper"
    )
    arm = Arm("base", f"{sys.executable} train.py {SEEDS}", tmp_path, Metric())
    results, said = Results(tmp_path / "out"), list[str]()
    SEEN.clear()
    results.add(arm, 1, arm.run(1), 0.1)
    assert results.of_now(arm, said.append) is arm
    facts.write_text("Name: tinypkg\nVersion: 2\n")
    environment._version.cache_clear()  # it holds for a second
    with pytest.raises(UserError, match="seed 2: tinypkg was 1 when the sweep began, and is 2"):
        arm.run(2)
    later = Results(tmp_path / "out").of_now(arm, said.append)
    assert later.identity != arm.identity
    assert said[-1] == "base is measured again: tinypkg has changed"


def test_an_edit_while_a_command_runs_is_an_error(call):
    Path("train.py").write_text(f"{TRAIN}\npathlib.Path('train.py').open('a').write('#')")
    code, _, err = call(-0.3)
    assert (code, "base, seed 1: train.py has changed" in err) == (2, True)


@cases("lab/judging/commands.toml", "noted")
def test_what_else_is_read_is_said(case):
    said: list[str] = []
    value = Metric(**case["metric"]).read(case["out"], "", said.append)
    assert value == pytest.approx(case["value"], abs=0, rel=0, nan_ok=True)
    assert case["says"] in said[0]


@cases("lab/judging/commands.toml", "printed")
def test_the_last_value_that_a_command_prints_counts(case, tmp_path):
    expected = case["expected"]
    (tmp_path / "out").write_bytes(case["out"].encode())
    arm = Arm("base", f"cat out # {SEEDS}", tmp_path, Metric(**case.get("metric", {})))
    if isinstance(expected, str):
        with pytest.raises(UserError, match=f"^base, seed 1: {expected}"):
            arm.run(1)
    else:
        assert arm.run(1) == pytest.approx(expected, nan_ok=True)


@cases("lab/judging/commands.toml", "bad")
def test_failing_commands_and_bad_options_are_one_line(case, lmzoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    options = ["--lower-is-better", "--base", case["base"], *case["options"]]
    if "candidate" in case:
        options += ["--candidate", case["candidate"]]
    code, out, err = lmzoo("judge", *options)
    err = "".join(line for line in err.splitlines(keepends=True) if "noticed" not in line)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert case["says"] in err


def test_a_candidate_that_diverges_is_not_kept(call):
    code, out, _ = call(8, "--max-seeds", "12")
    assert code == 1
    assert "diverged: 0 of base" in out


def test_a_traceback_with_exit_code_0_is_said(tmp_path):
    (tmp_path / "t.py").write_text("print(2)\nraise ValueError('no gpu')")
    said: list[str] = []
    arm = Arm("base", f"{sys.executable} t.py {SEEDS} | cat", tmp_path, Metric())
    assert arm.run(7, said.append) == 2
    assert said[0].startswith("base, seed 7: warning: printed a traceback (ValueError: no gpu)")


def test_a_run_ends_with_its_process(tmp_path):
    begun = time.monotonic()
    assert Arm("base", f"sleep 60 & echo {SEEDS}", tmp_path, Metric()).run(7) == 7
    assert time.monotonic() - begun < 20


FOREIGN = json.dumps(dict.fromkeys(RUN_KEYS)).encode() + b"\n"


def damage(folder: Path, rng: random.Random) -> None:
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
        lambda: text + rng.choice((b'{"arm": 3}\n', b"[]\n", b"null", b"\0\0\0\n", FOREIGN)),
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

        def run(
            self: Arm, seed: int, _: Any, effect: float = effect, number: int = number
        ) -> float:
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


def test_a_judgement_that_was_killed_and_damaged_decides_as_the_whole_one_or_not(tmp_path):
    refused = 0
    for case in range(100):
        whole = series(tmp_path / f"{case} whole", case, None)
        found = series(tmp_path / f"{case} damaged", case, random.Random(case))
        refused += found.count("refused")
        for one, other in zip(found, whole, strict=True):
            assert one in ("refused", other), (case, found, whole)
    assert refused < 150  # most are decided


def test_equal_results_need_no_seeds_and_no_terminal(lmzoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = ("--base", "cat; echo 1 # {seed}", "--candidate", f"echo 1 # {300 * 'x'} {{seed}}")
    code, out, err = lmzoo("judge", *commands, "--max-seeds", "3", "--higher-is-better")
    assert (code, out) == (3, "undecided: difference +0 (0 to 0), p 1, 3 pairs of seeds\n")
    assert "warning: base and candidate: every seed has the same result" in err
    assert lmzoo("judge", *commands, "--lower-is-better", "--margin", "0.1")[0] == 1
    assert "higher or a lower value of the last line better?" in lmzoo("judge", *commands)[2]


@pytest.mark.parametrize(
    ("extra", "sign"), [(("--lower-is-better",), 1), (("--higher-is-better",), -1)]
)
def test_the_answer_of_two_looks_is_that_of_scipy(extra, sign, lmzoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = np.array([3.1, 2.1, 4.3, 3.0, 1.8, 4.2])  # seeds share nearly all of the variance
    change = np.array([0.02, 0.3, 0.13, 0.16, 0.14, 0.15])
    texts = (" ".join(map(str, x)) for x in (base, base - sign * change))
    arms = [f"echo {text} | cut -d' ' -f{SEEDS}" for text in texts]
    options = ("--base", arms[0], "--candidate", arms[1], "--max-seeds", "6", "--margin", "0.05")
    code, out, _ = lmzoo("judge", *options, *extra, "--json")
    answer, better = json.loads(out), -sign * change
    looks = [stats.ttest_1samp(better[:n], 0) for n in (3, 6)]  # each look has half of the error
    numbers = [answer.pop(name) for name in ("difference", "low", "high", "p")]
    low, high = looks[1].confidence_interval(0.95)  # of the last look
    assert numbers == pytest.approx([better.mean(), low, high, 2 * looks[1].pvalue])
    assert (code, answer) == (3, {  # the first three seeds do not show it
        "decision": "undecided", "verdict": "better-open", "confirmed": False, "margin": 0.05,
        "seeds": [6, 6], "diverged": [0, 0], "seeds_needed": None, "out_of_time": False,
    })  # fmt: skip


def test_a_change_of_a_variable_measures_an_arm_again(tmp_path, monkeypatch):
    arm = Arm("a", "echo $LEVEL {seed}", tmp_path, Metric())
    monkeypatch.setenv("LEVEL", "1")
    Results(tmp_path / "out").add(arm, 1, 2.0, 0.1)
    known = Results(tmp_path / "out")
    said: list[str] = []
    monkeypatch.setenv("LEVEL", "2")
    assert (known.of_now(arm, said.append).identity, 1) not in known.values
    assert said[0] == "a is measured again: LEVEL has changed"
    monkeypatch.setenv("LEVEL", "1")
    assert (known.of_now(arm, said.append).identity, 1) in known.values
