"""`lmzoo sample`: sampling, greedy decoding, beam search, own sources and invalid options."""

import itertools
import math
from pathlib import Path

import pytest
import torch

from lmzoo.cli.sample import encode_source
from lmzoo.contract import END, START
from lmzoo.lab.store.records import RunFolder
from lmzoo.train.trained import load_run
from tests.cases import cases, rows
from tests.cli.run_lmzoo import run_lmzoo

WHO = {"man": 3, "dog": 2, "cat": 1}
DOES = {"runs": 3, "sits": 2, "sleeps": 1}
LINES = []
for who, does in itertools.product(WHO, DOES):
    count = WHO[who] * DOES[does]
    LINES += [f"a {who} {does}"] * count


@pytest.fixture
def sample(printed, runs):
    """Run `lmzoo sample` and return its lines."""

    def call(*arguments: object) -> list[str]:
        return printed("sample", arguments, "--runs", runs).splitlines()

    return call


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Folder with runs of gru, backward_lm and gru_vae."""
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "own.txt"
    text.write_text("\n".join(LINES * 20))  # too few different lines: all are in each split
    small = ["--corpus", f"text:{text}", "--set", "corpus.length=6", "--out", folder / "runs"]
    for options in (
        "gru --epochs 6 --set recipe.lr=0.05 --set model.width=8",
        "backward_lm --epochs 1",
        "gru_vae --epochs 1 --set model.width=8",
    ):
        assert run_lmzoo("train", options.split(), small) == 0
    return folder / "runs"


def parse_beam(line: str) -> tuple[float, str]:
    """Return the log probability and the sentence of a beam."""
    number, _, text = line.strip().partition("  ")
    return float(number), text


def folder_of(runs: Path, row: str) -> Path:
    """Return the folder of the run of a row."""
    for path in runs.glob("*/config.json"):
        if f'"row": "{row}"' in path.read_text():
            return path.parent
    raise AssertionError(row)


def test_a_vae_draws_its_latent_for_each_sentence(sample):
    lines = sample("gru_vae", "--count", 20)
    again = sample("gru_vae", "--count", 20)
    assert len(lines) == 20
    assert len(set(lines)) > 1
    assert again == lines


def test_a_vae_continues_a_prefix(sample):
    lines = sample("gru_vae", "--prefix", "a man", "--count", 2)
    assert len(lines) == 2


def test_the_record_of_a_vae_has_its_report(runs):
    records = RunFolder(folder_of(runs, "gru_vae")).records()
    (test,) = [record for record in records if record["event"] == "test"]
    assert test["report"].keys() >= {"KL", "active units", "bound of 64 samples"}


def test_beams_are_sorted_sentences(sample):
    beams = map(parse_beam, sample("gru", "--beam", 9))
    numbers, texts = zip(*beams, strict=True)
    assert set(texts) == set(LINES)
    assert list(numbers) == sorted(numbers, reverse=True)


def test_a_beam_has_its_log_probability(sample, runs):
    best, *_ = sample("gru", "--beam", 9)
    number, text = parse_beam(best)
    trained = load_run(folder_of(runs, "gru"))
    words = trained.corpus.vocabulary.encode(text.split())
    tokens = torch.tensor([[START] + words + [END]])
    scores = trained.model.log_prob(tokens, torch.tensor([5]))
    assert number == pytest.approx(scores.sum().item(), abs=1e-3)
    # "a man runs" is 9 of 36 lines.
    assert math.exp(number) == pytest.approx(1 / 4, abs=0.08)


def test_one_beam_low_temperature_and_top_1_are_greedy(sample):
    (beam,) = sample("gru", "--beam", 1)
    _, best = parse_beam(beam)
    cold = sample("gru", "--temperature", 0.01, "--count", 3)
    top = sample("gru", "--top", 1, "--count", 3)
    assert sample("gru", "--greedy") == [best]
    assert cold == top == [best] * 3


@pytest.mark.parametrize("options", ["--beam 2", "--greedy", "--temperature 0.8"])
def test_sentences_begin_with_the_prefix(sample, options):
    lines = sample("gru", "--prefix", "a dog", *options.split())
    for line in lines:
        assert "a dog " in line


def test_invalid_input_gives_one_line_and_exit_code_2(refused, runs):
    for arguments, message in rows("cli/cases.toml", "no_sample"):
        error = refused("sample", "--runs", runs, arguments)
        assert message in error


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    """Folders of a trained seq2seq and of a gru."""
    out = tmp_path_factory.mktemp("translators")
    pairs = out / "pairs.tsv"
    pairs.write_text("eins\tone\nzwei\ttwo\ndrei\tthree\nvier vier\tfour four\n" * 30)
    corpus = ["--corpus", f"pairs:{pairs}", "--set", "corpus.length=5"]
    options = {
        "seq2seq": "--epochs 25 --set recipe.lr=0.03 --set recipe.batch=20 --set model.width=8",
        "gru": "--epochs 1 --set model.width=4",
    }
    folders = {}
    for name, words in options.items():
        own = words.split() + corpus
        assert run_lmzoo("train", name, "--out", out / name, own) == 0
        (folder,) = (out / name).iterdir()
        folders[name] = str(folder)
    return folders


@pytest.fixture
def translate(printed, translators):
    """Run `lmzoo sample` of the translator and return its lines."""

    def call(*arguments: object) -> list[str]:
        return printed("sample", translators["seq2seq"], arguments).splitlines()

    return call


@pytest.mark.parametrize(
    ("source", "target"), [("eins", "one"), ("drei", "three"), ("vier vier", "four four")]
)
def test_the_source_is_translated(translate, source, target):
    assert translate("--greedy", "--source", source) == [target]


def test_a_source_is_encoded_as_in_the_corpus(translators):
    trained = load_run(Path(translators["seq2seq"]))
    tokens, lengths = trained.corpus.valid.sources
    for row, length in zip(tokens[:8], lengths[:8], strict=True):
        text = trained.corpus.source_vocabulary.decode(row.tolist())
        (ids,), count = encode_source(trained, text)
        assert ids.equal(row[:length])
        assert count == length


def test_one_source_has_several_beams(translate):
    beams = map(parse_beam, translate("--source", "zwei", "--beam", "3"))
    scores, texts = zip(*beams, strict=True)
    assert len(texts) == 3
    assert texts[0] == "two"
    assert list(scores) == sorted(scores, reverse=True)


def test_one_source_has_several_samples(translate):
    lines = translate("--source", "zwei", "--count", "4")
    assert len(lines) == 4
    # Only sources of the corpus are printed with their answers.
    assert "→" not in "".join(lines)


def test_sources_of_the_validation_split_are_printed_with_their_answers(translate):
    lines = translate("--greedy", "--count", "2")
    assert "".join(lines).count("→") == 2


@cases("cli/cases.toml", "no_source", "name, source, message")
def test_an_invalid_source_gives_one_line(refused, translators, name, source, message):
    assert message in refused("sample", translators[name], "--source", source)
