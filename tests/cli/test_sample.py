"""`python -m lmzoo sample`: sentences a person can read, and one line for what cannot be."""

import math
import sys
from pathlib import Path

import pytest
import torch

from lmzoo.cli.main import COMMANDS, build_app
from lmzoo.command_line import run_app
from lmzoo.train.trained import open_run

WHO = {"man": 3, "dog": 2, "cat": 1}
DOES = {"runs": 3, "sits": 2, "sleeps": 1}
LINES = [f"a {who} {does}" for who in WHO for does in DOES for _ in range(WHO[who] * DOES[does])]


class Shell:
    """The command line, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture, patch: pytest.MonkeyPatch) -> None:
        self._capsys, self._patch = capsys, patch

    def __call__(self, *words: object) -> tuple[int, list[str], str]:
        self._patch.setattr(sys, "argv", ["lmzoo", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            run_app(build_app(list(COMMANDS)))
        said = self._capsys.readouterr()
        return int(str(stop.value.code)), said.out.splitlines(), said.err


@pytest.fixture
def lmzoo(capsys, monkeypatch) -> Shell:
    return Shell(capsys, monkeypatch)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with one small run of a GRU and one of a reader from right to left."""
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "own.txt"
    text.write_text("\n".join(LINES * 3))
    with pytest.MonkeyPatch.context() as patch:
        small = [
            "--corpus",
            f"text:{text}",
            "--set",
            "corpus.length=6",
            "--out",
            str(folder / "runs"),
        ]
        for options in (
            ["gru", "--epochs", "20", "--set", "recipe.lr=0.05"],
            ["backward_lm", "--epochs", "1"],
        ):
            width = ["--set", "model.width=8"] if options[0] == "gru" else []
            patch.setattr(sys, "argv", ["lmzoo", "train", *options, *small, *width])
            with pytest.raises(SystemExit) as stop:
                run_app(build_app(list(COMMANDS)))
            assert stop.value.code == 0
    return folder / "runs"


def scored(line: str) -> tuple[float, str]:
    number, _, text = line.strip().partition("  ")
    return float(number), text


def test_beams_are_sentences_with_their_log_probability(lmzoo, runs) -> None:
    code, out, _ = lmzoo("sample", "gru", "--beam", 9, "--runs", runs)
    assert code == 0
    found = [scored(line) for line in out]
    assert {text for _, text in found} == set(LINES)
    assert [number for number, _ in found] == sorted((n for n, _ in found), reverse=True)
    trained = open_run(
        next(path for path in runs.iterdir() if "gru" in (path / "config.json").read_text())
    )
    number, text = found[0]
    tokens = torch.tensor([[1, *trained.corpus.vocabulary.encode(text.split()), 2]])
    score = trained.model.log_prob(tokens, torch.tensor([5])).sum().item()
    assert number == pytest.approx(score, abs=1e-3)
    assert math.exp(number) == pytest.approx(1 / 4, abs=0.08)


def test_fewer_beams_may_be_shown_than_are_searched(lmzoo, runs) -> None:
    _, all_beams, _ = lmzoo("sample", "gru", "--beam", 4, "--runs", runs)
    code, out, _ = lmzoo("sample", "gru", "--beam", 4, "--count", 2, "--runs", runs)
    assert (code, out) == (0, all_beams[:2])


def test_one_beam_is_greedy_and_so_is_the_cold(lmzoo, runs) -> None:
    _, (best,), _ = lmzoo("sample", "gru", "--beam", 1, "--runs", runs)
    assert lmzoo("sample", "gru", "--greedy", "--runs", runs)[:2] == (0, [scored(best)[1]])
    for cold in (["--temperature", 0.01], ["--top", 1]):
        code, out, _ = lmzoo("sample", "gru", *cold, "--count", 3, "--runs", runs)
        assert (code, out) == (0, [scored(best)[1]] * 3)


def test_a_prefix_is_gone_on_from(lmzoo, runs) -> None:
    for how in (["--beam", 2], ["--greedy"], ["--temperature", 0.8]):
        code, out, _ = lmzoo("sample", "gru", *how, "--prefix", "a dog", "--runs", runs)
        assert code == 0
        assert all("a dog " in line for line in out)


def test_draws_depend_on_the_seed_and_on_nothing_else(lmzoo, runs) -> None:
    _, once, _ = lmzoo("sample", "gru", "--seed", 1, "--runs", runs)
    assert len(once) == 10
    assert lmzoo("sample", "gru", "--seed", 1, "--runs", runs)[1] == once
    assert lmzoo("sample", "gru", "--seed", 2, "--runs", runs)[1] != once


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gru", "--beam", "0"], "--beam"),
        (["gru", "--temperature", "0"], "--temperature"),
        (["gru", "--beam", "2", "--greedy"], "exclude one another"),
        (["gru", "--greedy", "--top", "3"], "exclude one another"),
        (["gru", "--beam", "2", "--count", "3"], "--count asks for 3"),
        (["gru", "--alpha", "1"], "--alpha 1 is for --beam"),
        (["gru", "--prefix", "a zebra"], "'zebra' is not in the vocabulary"),
        (["gru", "--prefix", "a man runs a man"], "--prefix has 5 tokens"),
        (["grru"], "no row of the zoo 'grru'"),
        (["DLM23"], "train lstm_lm"),
        (["backward_lm"], "does not read from left to right"),
        (["no/such/folder"], "no/such/folder"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_two(arguments, message, lmzoo, runs) -> None:
    code, out, err = lmzoo("sample", *arguments, "--runs", runs)
    assert (code, out) == (2, [])
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
