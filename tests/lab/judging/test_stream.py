"""A series of candidates: its levels, its places, and what one keep changes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from lmzoo.lab.judging.commands import DISCARD, KEEP, decide
from lmzoo.lab.judging.stream import SEEDS, Stream
from lmzoo.lab.statistics.compared import ERROR, UNDECIDED, looks, spend
from lmzoo.lab.statistics.stream import keep_level, keep_looks
from lmzoo.lab.store.local import Store
from tests.lab.judging.test_commands import TRAIN


def test_the_levels_of_a_series_without_keeps_sum_to_less_than_the_error() -> None:
    levels = [keep_level(i, 0) for i in range(1, 20_001)]
    assert 0.8 * ERROR < sum(levels) < ERROR
    assert levels == sorted(levels, reverse=True)
    assert keep_level(7, 2) == pytest.approx(3 * keep_level(7, 0))
    own = keep_looks(spend(looks(3, 24)), 0.001)
    assert sum(look.error for look in own) == pytest.approx(0.001)
    assert [look.seeds for look in own] == [3, 6, 12, 24]


def test_a_candidate_is_kept_at_the_level_of_its_place_only() -> None:
    rng, schedule = np.random.default_rng(0), spend(looks(3, 24))
    noise = rng.normal(0, 1, 24)
    x = np.stack([np.zeros(24), noise - noise.mean() - 0.8])
    assert decide(x, schedule)[0] == KEEP
    assert decide(x, schedule, level=keep_level(1, 0))[0] == KEEP
    decision, _, p = decide(x, schedule, level=keep_level(100, 0))
    assert decision == UNDECIDED
    assert keep_level(100, 0) < p < ERROR
    assert decide(-x, schedule, level=keep_level(100, 0))[0] == DISCARD
    x[1] -= 3
    decision, _, p = decide(x, schedule, level=keep_level(100, 0))
    assert decision == KEEP
    assert p < keep_level(100, 0)


def test_a_place_is_taken_once_and_a_keep_gives_new_seeds(tmp_path: Path) -> None:
    stream = Stream(Store(tmp_path))
    first = stream.place("a b")
    assert (first.number, first.kept, first.first_seed) == (1, 0, 1)
    stream = Stream(Store(tmp_path))  # a judge that was killed
    assert stream.place("a b") == first
    stream.decide("a b", KEEP)
    with (tmp_path / "stream.jsonl").open("a") as file:
        file.write('{"pair": "b c", "num')  # killed while it wrote
    second = Stream(Store(tmp_path)).place("b c")
    assert (second.number, second.kept, second.first_seed) == (2, 1, 1 + SEEDS)
    assert second.level == keep_level(2, 1)
    assert Stream(Store(tmp_path)).place("a b").decision == KEEP


def test_candidates_on_the_command_line(lmzoo, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)

    def call(base: float, candidate: float) -> tuple[int, dict]:
        pair = [f"{sys.executable} train.py {own:g} {{seed}}" for own in (base, candidate)]
        options = (
            "--metric",
            "valid",
            "--lower-is-better",
            "--stream",
            "--max-seeds",
            "12",
            "--json",
        )
        code, out, err = lmzoo("judge", "--base", pair[0], "--candidate", pair[1], *options)
        assert out, err
        return code, json.loads(out)

    code, answer = call(0, 0.0001)
    assert (code, answer["candidate"], answer["kept"]) == (3, 1, 0)
    code, answer = call(0, -0.3)
    assert (code, answer["candidate"], answer["kept"]) == (0, 2, 0)
    assert answer["p"] < answer["level"] == keep_level(2, 0)
    runs = len(Path("count").read_text())
    assert call(0, -0.3)[1] == answer, "it is judged once"
    assert len(Path("count").read_text()) == runs
    code, answer = call(-0.3, 0.3)
    assert (code, answer["candidate"], answer["kept"]) == (1, 3, 1)
    lines = Path("judge-runs/runs.jsonl").read_text().splitlines()
    seeds = [json.loads(line)["seed"] for line in lines]
    assert max(seeds[:runs]) < SEEDS < min(seeds[runs:]), "the incumbent has new runs"
    code, _, err = lmzoo("judge", "results.csv", "--by", "a", "--metric", "b", "--stream")
    assert (code, err.count("\n")) == (2, 1)
    assert "--stream is for commands; give --base" in err
