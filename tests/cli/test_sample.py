"""`lmzoo sample`: sampling, greedy decoding, beam search, own sources and invalid options."""

import json
import math
from pathlib import Path

import pytest
import torch

from lmzoo.cli.sample import encode_source
from lmzoo.train.trained import load_run
from tests.cases import rows
from tests.cli.run_lmzoo import run_lmzoo

WHO = {"man": 3, "dog": 2, "cat": 1}
DOES = {"runs": 3, "sits": 2, "sleeps": 1}
LINES = [f"a {who} {does}" for who in WHO for does in DOES for _ in range(WHO[who] * DOES[does])]


@pytest.fixture
def sample(lmzoo, runs):
    """Run `lmzoo sample` and return its exit code, output lines and stderr."""

    def call(*arguments: object) -> tuple[int, list[str], str]:
        code, out, err = lmzoo("sample", *arguments, "--runs", runs)
        return code, out.splitlines(), err

    return call


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Folder with runs of gru, backward_lm and gru_vae."""
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "own.txt"
    text.write_text("\n".join(LINES * 20))  # too few different lines: all are in each split
    small = ["--corpus", f"text:{text}", "--set", "corpus.length=6", "--out", folder / "runs"]
    gru = ["gru", "--epochs", 6, "--set", "recipe.lr=0.05", "--set", "model.width=8"]
    vae = ["gru_vae", "--epochs", 1, "--set", "model.width=8"]
    for options in (gru, ["backward_lm", "--epochs", 1], vae):
        assert run_lmzoo("train", *options, *small) == 0
    return folder / "runs"


def parse_beam(line: str) -> tuple[float, str]:
    number, _, text = line.strip().partition("  ")
    return float(number), text


def test_a_vae_draws_its_latent_for_each_sentence(sample, runs):
    code, out, err = sample("gru_vae", "--count", 20)
    assert (code, "error" in err) == (0, False)
    assert len(out) == 20
    assert len(set(out)) > 1
    assert sample("gru_vae", "--count", 20)[1] == out
    assert sample("gru_vae", "--prefix", "a man", "--count", 2)[0] == 0
    config = next(path for path in runs.rglob("config.json") if "gru_vae" in path.read_text())
    records = (config.parent / "records.ndjson").read_text().splitlines()
    (test,) = [json.loads(line) for line in records if '"test"' in line]
    assert set(test["report"]) >= {"KL", "active units", "bound of 64 samples"}


def test_beams_are_sorted_sentences_with_their_log_probability(sample, runs):
    code, out, _ = sample("gru", "--beam", 9)
    assert code == 0
    beams = [parse_beam(line) for line in out]
    assert {text for _, text in beams} == set(LINES)
    assert [number for number, _ in beams] == sorted((n for n, _ in beams), reverse=True)
    configs = (path for path in runs.glob("*/config.json") if '"row": "gru"' in path.read_text())
    trained = load_run(next(configs).parent)
    number, text = beams[0]
    tokens = torch.tensor([[1, *trained.corpus.vocabulary.encode(text.split()), 2]])
    score = trained.model.log_prob(tokens, torch.tensor([5])).sum().item()
    assert number == pytest.approx(score, abs=1e-3)
    assert math.exp(number) == pytest.approx(1 / 4, abs=0.08)


def test_one_beam_low_temperature_and_top_1_are_greedy(sample):
    _, (best,), _ = sample("gru", "--beam", 1)
    assert sample("gru", "--greedy")[:2] == (0, [parse_beam(best)[1]])
    for options in (["--temperature", 0.01], ["--top", 1]):
        code, out, _ = sample("gru", *options, "--count", 3)
        assert (code, out) == (0, [parse_beam(best)[1]] * 3)


def test_sentences_begin_with_the_prefix(sample):
    for options in (["--beam", 2], ["--greedy"], ["--temperature", 0.8]):
        code, out, _ = sample("gru", *options, "--prefix", "a dog")
        assert code == 0
        assert all("a dog " in line for line in out)


def test_invalid_input_gives_one_line_and_exit_code_2(refused, runs):
    for arguments, message in rows("cli/cases.toml", "no_sample"):
        assert message in refused("sample", *arguments, "--runs", runs)


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    """Folders of a trained seq2seq and of a gru."""
    out = tmp_path_factory.mktemp("translators")
    words = ["eins\tone", "zwei\ttwo", "drei\tthree", "vier vier\tfour four"]
    (out / "pairs.tsv").write_text("\n".join(words * 30) + "\n")
    corpus = ["--corpus", f"pairs:{out / 'pairs.tsv'}", "--set", "corpus.length=5"]
    options = {
        "seq2seq": ["--epochs", 25, "--set", "recipe.lr=0.03", "--set", "recipe.batch=20"],
        "gru": ["--epochs", 1],
    }
    for name, width in (("seq2seq", 8), ("gru", 4)):
        small = ["--set", f"model.width={width}", "--out", out / name]
        assert run_lmzoo("train", name, *options[name], *corpus, *small) == 0
    return {name: str(next((out / name).iterdir())) for name in ("seq2seq", "gru")}


def test_the_source_is_translated(lmzoo, translators):
    for source, target in (("eins", "one"), ("drei", "three"), ("vier vier", "four four")):
        code, out, _ = lmzoo("sample", translators["seq2seq"], "--greedy", "--source", source)
        assert (code, out) == (0, target + "\n")


def test_a_source_is_encoded_as_in_the_corpus(translators):
    trained = load_run(Path(translators["seq2seq"]))
    tokens, lengths = trained.corpus.valid.sources
    for row, length in zip(tokens[:8], lengths[:8].tolist(), strict=True):
        text = trained.corpus.source_vocabulary.decode(row.tolist())
        ids, count = encode_source(trained, text)
        assert ids.tolist() == [row[:length].tolist()]
        assert count.tolist() == [length]


def test_one_source_can_have_several_answers(lmzoo, translators):
    code, out, _ = lmzoo("sample", translators["seq2seq"], "--source", "zwei", "--beam", "3")
    beams = [line.split(maxsplit=1) for line in out.splitlines()]
    assert (code, len(beams)) == (0, 3)
    assert beams[0][1] == "two"
    scores = [float(score) for score, *_ in beams]
    assert scores == sorted(scores, reverse=True)
    code, out, _ = lmzoo("sample", translators["seq2seq"], "--source", "zwei", "--count", "4")
    assert (code, len(out.splitlines())) == (0, 4)
    assert "→" not in out
    # Without --source, sources of the validation split are printed with their answers.
    code, out, _ = lmzoo("sample", translators["seq2seq"], "--greedy", "--count", "2")
    assert (code, out.count("→")) == (0, 2)


def test_an_invalid_source_gives_one_line(refused, translators):
    long = "--source has 4 tokens; the limit of the sources of pairs is 3"
    for name, source, message in (
        ("seq2seq", "eins sieben", "'sieben' is not in the vocabulary of the sources of pairs"),
        ("seq2seq", "<end>", "'<end>'"),
        ("seq2seq", " ", "--source is empty"),
        ("seq2seq", "eins eins eins eins", long),
        ("gru", "eins", "gru reads no source"),
    ):
        assert message in refused("sample", translators[name], "--source", source)
