"""Two commands: decisions and exit codes, looks, resumption, errors."""

import contextlib
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
from tests.cases import cases, rows

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
def script(tmp_path, monkeypatch) -> Path:
    """The script of both commands, in the folder in which they run."""
    monkeypatch.chdir(tmp_path)
    file = Path("train.py")
    file.write_text(TRAIN)
    return file


@pytest.fixture
def call(lmzoo, script):
    """Judge an effect against none."""

    def judge(effect: float, *options: object):
        base = f"{sys.executable} {script} 0 {SEEDS} count"
        candidate = f"{sys.executable} {script} {effect:g} {SEEDS} count"
        commands = ("--base", base, "--candidate", candidate, "--metric", "valid")
        if "--higher-is-better" not in options:
            commands += ("--lower-is-better",)
        return lmzoo("judge", *commands, *options)

    return judge


def runs_made() -> int:
    return len(Path("count").read_text())


@cases("lab/judging/commands.toml", "decisions", "effect, options, code, word")
def test_the_decision_is_the_exit_code(call, effect, options, code, word):
    found, out, _ = call(effect, *options)
    decision, _, _ = out.partition(":")
    assert found == code
    assert decision == word


def test_a_judge_that_is_out_of_time_says_so(call):
    _, out, _ = call(-0.3, "--budget", "0", "--json")
    assert json.loads(out)["out_of_time"]


def test_a_clear_answer_needs_the_first_look_and_as_many_fresh_seeds(call):
    code, _, err = call(-0.3, "--max-seeds", "24")
    assert code == 0
    assert "warning" not in err
    # Of both commands: three seeds, and three that repeat them.
    assert runs_made() == 2 * (3 + 3)


def test_a_killed_judge_goes_on_from_its_runs(call):
    six_seeds = ("--max-seeds", "6", "--json", "--out", "whole")
    _, whole, _ = call(0.0005, *six_seeds)
    file = Path("whole/runs.jsonl")
    lines = file.read_text().splitlines()
    # It was killed while it wrote: five runs are whole, the sixth is made again.
    torn = lines[5][:20]
    file.write_text("\n".join(lines[:5] + [torn]))
    Path("count").unlink()
    _, again, _ = call(0.0005, *six_seeds)
    assert again == whole
    # Six seeds of both commands.
    assert runs_made() == 12 - 5


def test_an_edited_script_is_another_run(call, script):
    call(-0.3)
    # The gain becomes a loss.
    script.write_text(TRAIN.replace("1 + effect", "1 - effect"))
    code, _, _ = call(-0.3)
    assert code == 1


def test_a_file_that_a_command_has_read_is_a_part_of_it(call, script):
    text = TRAIN.replace("count", "other")
    script.write_text(text.replace("1 + effect", "int(open('x').read()) + effect"))
    Path("x").write_text("1")
    call(-0.3)
    Path("x").write_text("31")
    _, _, err = call(-0.3)
    assert "base is measured again: x has changed" in err
    # The runs of the first value are still known.
    Path("x").write_text("1")
    _, _, err = call(-0.3)
    assert "measured again" not in err
    values = []
    for line in Path("judge-runs/runs.jsonl").read_text().splitlines():
        run = json.loads(line)
        values.append(float(run["value"]))
    assert len(values) == 24
    # Six runs of each arm with 1, then as many with 31.
    assert max(values[:12]) < 20 < min(values[12:])


class Package:
    """A package that a helper of the script of `arm` imports."""

    def __init__(self, folder: Path) -> None:
        site = folder / "site-packages"
        self.facts = site / "tinypkg.dist-info/METADATA"
        self.facts.parent.mkdir(parents=True)
        self.upgrade_to("1")
        (site / "tinypkg.py").write_text("")
        (folder / "helper.py").write_text("import tinypkg\nprint(3)")
        script = "import sys\nsys.path.append('site-packages')\nimport helper"
        (folder / "train.py").write_text(script)
        self.arm = Arm("base", f"{sys.executable} train.py {SEEDS}", folder, Metric())

    def upgrade_to(self, version: str) -> None:
        self.facts.write_text(f"Name: tinypkg\nVersion: {version}\n")
        environment._version.cache_clear()  # it holds for a second


@pytest.fixture
def package(tmp_path, monkeypatch) -> Package:
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    SEEN.clear()
    return Package(tmp_path)


def test_an_upgrade_of_a_package_while_the_judge_runs_is_an_error(package):
    package.arm.run(1)
    package.upgrade_to("2")
    with pytest.raises(UserError, match="seed 2: tinypkg was 1 when the sweep began, and is 2"):
        package.arm.run(2)


def test_a_package_of_a_helper_is_a_part_of_the_command(package, tmp_path):
    said: list[str] = []
    arm = package.arm
    results = Results(tmp_path / "out")
    results.add(arm, 1, arm.run(1), 0.1)
    assert results.of_now(arm, said.append) is arm
    package.upgrade_to("2")
    later = Results(tmp_path / "out").of_now(arm, said.append)
    assert later.identity != arm.identity
    assert said == ["base is measured again: tinypkg has changed"]


def test_an_edit_while_a_command_runs_is_an_error(call, script):
    script.write_text(f"{TRAIN}\npathlib.Path('train.py').open('a').write('#')")
    code, _, err = call(-0.3)
    assert code == 2
    assert "base, seed 1: train.py has changed" in err


@cases("lab/judging/commands.toml", "noted")
def test_what_else_is_read_is_said(case):
    said: list[str] = []
    metric = Metric(**case["metric"])
    value = metric.read(case["out"], "", said.append)
    np.testing.assert_equal(value, case["value"])
    assert case["says"] in said[0]


@cases("lab/judging/commands.toml", "printed")
def test_the_last_value_that_a_command_prints_counts(case, tmp_path):
    expected = case["expected"]
    (tmp_path / "out").write_bytes(case["out"].encode())
    metric = Metric(**case.get("metric", {}))
    arm = Arm("base", f"cat out # {SEEDS}", tmp_path, metric)
    if isinstance(expected, str):
        with pytest.raises(UserError, match=f"^base, seed 1: {expected}"):
            arm.run(1)
    else:
        assert arm.run(1) == pytest.approx(expected, nan_ok=True)


@cases("lab/judging/commands.toml", "bad")
def test_failing_commands_and_bad_options_are_one_line(case, lmzoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    options = ["--lower-is-better", "--base", case["base"]] + case["options"]
    if "candidate" in case:
        options += ["--candidate", case["candidate"]]
    code, out, err = lmzoo("judge", *options)
    lines = [line for line in err.splitlines() if "noticed" not in line]
    assert code == 2
    assert out == ""
    assert len(lines) == 1
    assert case["says"] in lines[0]


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
    # The shell ends at once and leaves a process behind.
    arm = Arm("base", f"sleep 60 & echo {SEEDS}", tmp_path, Metric())
    begun = time.monotonic()
    assert arm.run(7) == 7
    assert time.monotonic() - begun < 20


FOREIGN = json.dumps(dict.fromkeys(RUN_KEYS)).encode() + b"\n"
"""A line with the right keys and no values."""
ADDED = (b'{"arm": 3}\n', b"[]\n", b"null", b"\0\0\0\n", FOREIGN)
DAMAGES = ("cut", "emptied", "a byte", "bytes lost", "added", "digits")


def damaged(text: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(text) + 1)
    before = text[:place]
    kind = rng.choice(DAMAGES)
    if kind == "cut":
        return before
    if kind == "emptied":
        return b""
    if kind == "a byte":
        return before + bytes([rng.randrange(256)]) + text[place + 1 :]
    if kind == "bytes lost":
        return before + text[place + rng.randrange(1, 9) :]
    if kind == "added":
        return text + rng.choice(ADDED)
    return text.replace(b"1", b"7")


def damage(folder: Path, rng: random.Random) -> None:
    files = sorted(folder.glob("*.json*"))
    if files:
        file = rng.choice(files)
        file.write_bytes(damaged(file.read_bytes(), rng))


SIZES = (-0.3, -0.02, 0.0, 0.02, 0.3)
"""Effects: clear ones, small ones and none."""


class Judgements:
    """Three candidates that are judged in one folder, and may be killed and damaged."""

    def __init__(self, folder: Path, case: int, kill: random.Random | None) -> None:
        self.folder = folder
        self.case = case
        self.kill = kill
        self.left = 99
        """Runs until it is killed."""

    def decisions(self) -> list[str]:
        """Return a decision for each candidate, `refused` from a refusal on."""
        found = []
        for number in range(3):
            try:
                found.append(self.decision(number))
            except UserError:
                break
            self.maybe_damage(0.15)
        return found + ["refused"] * (3 - len(found))

    def decision(self, number: int) -> str:
        base = Arm("base", f"base {SEEDS}", self.folder, Metric())
        candidate = Arm("candidate", f"candidate {number} {SEEDS}", self.folder, Metric())
        effect = self.seeded(number).choice(SIZES)
        margin = 0.01 * (self.case % 3)
        self.live(12)
        for _ in range(9):
            try:
                with self.patched(effect):
                    answer = judge_commands(
                        base, candidate, Results(self.folder), max_seeds=12, margin=margin
                    )
            except KeyboardInterrupt:
                self.live(30)
                self.maybe_damage(0.3)
            else:
                return answer["decision"]
        raise UserError("it was killed nine times")

    def seeded(self, *names: object) -> random.Random:
        return random.Random(f"{self.case} {names}")

    def live(self, most: int) -> None:
        if self.kill:
            self.left = self.kill.randrange(most)

    def maybe_damage(self, probability: float) -> None:
        if self.kill and self.kill.random() < probability:
            damage(self.folder, self.kill)

    @contextlib.contextmanager
    def patched(self, effect: float):
        """Replace the commands by draws whose seeds share most of the noise."""

        def run(arm: Arm, seed: int, _: Any) -> float:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            own = self.seeded(arm.command, seed).gauss(0, 0.02)
            common = self.seeded(seed).gauss(1, 0.3)
            if arm.name == "candidate":
                return common + own + effect
            return common + own

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Arm, "run", run)
            yield


def test_a_judgement_that_was_killed_and_damaged_decides_as_the_whole_one_or_not(tmp_path):
    refused = 0
    for case in range(100):
        undisturbed = Judgements(tmp_path / f"{case} whole", case, None)
        disturbed = Judgements(tmp_path / f"{case} killed", case, random.Random(case))
        whole = undisturbed.decisions()
        found = disturbed.decisions()
        refused += found.count("refused")
        for one, other in zip(found, whole, strict=True):
            assert one in ("refused", other), (case, found, whole)
    # Of three hundred, most are decided.
    assert refused < 150


@pytest.fixture
def equal(lmzoo, tmp_path, monkeypatch):
    """Judge two commands with equal results; the base reads what a terminal would give."""
    monkeypatch.chdir(tmp_path)
    candidate = f"echo 1 # {300 * 'x'} {SEEDS}"
    commands = ("judge", "--base", f"cat; echo 1 # {SEEDS}", "--candidate", candidate)
    return lambda *options: lmzoo(*commands, *options)


def test_equal_results_are_undecided_without_a_margin(equal):
    code, out, err = equal("--max-seeds", "3", "--higher-is-better")
    assert code == 3
    assert out == "undecided: difference +0 (0 to 0), p 1, 3 pairs of seeds\n"
    assert "warning: base and candidate: every seed has the same result" in err


def test_equal_results_are_no_gain_within_a_margin(equal):
    code, _, _ = equal("--lower-is-better", "--margin", "0.1")
    assert code == 1


def test_whether_higher_is_better_is_asked(equal):
    _, _, err = equal()
    assert "higher or a lower value of the last line better?" in err


def command_of(values: np.ndarray) -> str:
    """Return a command that prints the value of its seed."""
    text = " ".join(map(str, values))
    return f"echo {text} | cut -d' ' -f{SEEDS}"


@pytest.fixture(params=["--lower-is-better", "--higher-is-better"])
def direction(request) -> str:
    return request.param


GAIN = np.array([0.02, 0.3, 0.13, 0.16, 0.14, 0.15])


@pytest.fixture
def two_looks(direction, lmzoo, tmp_path, monkeypatch):
    """The exit code and the answer of looks at three and at six seeds."""
    monkeypatch.chdir(tmp_path)
    # Seeds share nearly all of the variance.
    base = np.array([3.1, 2.1, 4.3, 3.0, 1.8, 4.2])
    candidate = base + GAIN
    if direction == "--lower-is-better":
        candidate = base - GAIN
    commands = ("--base", command_of(base), "--candidate", command_of(candidate))
    options = ("--max-seeds", "6", "--margin", "0.05", direction, "--json")
    code, out, _ = lmzoo("judge", *commands, *options)
    return code, json.loads(out)


def test_the_numbers_of_two_looks_are_those_of_scipy(two_looks, direction):
    _, answer = two_looks
    better = GAIN
    if direction == "--lower-is-better":
        better = -GAIN
    last = stats.ttest_1samp(better, 0)
    low, high = last.confidence_interval(0.95)
    # Each look has half of the error; the first one does not show it.
    p = 2 * last.pvalue
    assert answer["difference"] == pytest.approx(better.mean())
    assert answer["low"] == pytest.approx(low)
    assert answer["high"] == pytest.approx(high)
    assert answer["p"] == pytest.approx(p)


def test_the_second_look_shows_what_the_first_does_not(two_looks):
    code, answer = two_looks
    for name in ("difference", "low", "high", "p"):
        del answer[name]
    assert code == 3
    assert answer == rows("lab/judging/commands.toml", "two_looks") | {"seeds_needed": None}


@pytest.fixture
def of_level(tmp_path, monkeypatch):
    """Return a function that says whether the run of an arm is known at a level, and what it says.

    The arm reads a variable; it was run at level 1.
    """
    arm = Arm("a", f"echo $LEVEL {SEEDS}", tmp_path, Metric())
    monkeypatch.setenv("LEVEL", "1")
    Results(tmp_path / "out").add(arm, 1, 2.0, 0.1)
    known = Results(tmp_path / "out")

    def at(level: str) -> tuple[bool, list[str]]:
        said: list[str] = []
        monkeypatch.setenv("LEVEL", level)
        now = known.of_now(arm, said.append)
        return (now.identity, 1) in known.values, said

    return at


def test_a_change_of_a_variable_measures_an_arm_again(of_level):
    is_known, said = of_level("2")
    assert not is_known
    assert said[0] == "a is measured again: LEVEL has changed"


def test_the_runs_of_an_earlier_value_of_a_variable_are_known(of_level):
    of_level("2")
    is_known, _ = of_level("1")
    assert is_known
