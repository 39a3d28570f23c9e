"""`lmzoo sample --source`: generation from the user's own source."""

from pathlib import Path

import pytest

from lmzoo.cli.sample import encode_source
from lmzoo.train.trained import load_run
from tests.cli.run_lmzoo import run_lmzoo


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    words = ["eins\tone", "zwei\ttwo", "drei\tthree", "vier vier\tfour four"]
    path.write_text("\n".join(words * 30) + "\n")
    return path


@pytest.fixture(scope="module")
def run(pairs, tmp_path_factory):
    """Folders of a trained seq2seq and of a gru."""
    out = tmp_path_factory.mktemp("runs")
    corpus = ["--corpus", f"pairs:{pairs}", "--set", "corpus.length=5"]
    options = {
        "seq2seq": ["--epochs", 25, "--set", "recipe.lr=0.03", "--set", "recipe.batch=20"],
        "gru": ["--epochs", 1],
    }
    for name, width in (("seq2seq", 8), ("gru", 4)):
        small = ["--set", f"model.width={width}", "--out", out / name]
        assert run_lmzoo("train", name, *options[name], *corpus, *small) == 0
    return {name: str(next((out / name).iterdir())) for name in ("seq2seq", "gru")}


def test_the_source_is_translated(lmzoo, run) -> None:
    for source, target in (("eins", "one"), ("drei", "three"), ("vier vier", "four four")):
        assert lmzoo("sample", run["seq2seq"], "--greedy", "--source", source)[:2] == (
            0,
            target + "\n",
        )


def test_a_source_is_encoded_as_in_the_corpus(run) -> None:
    trained = load_run(Path(run["seq2seq"]))
    tokens, lengths = trained.corpus.valid.sources
    for row, length in zip(tokens[:8], lengths[:8].tolist(), strict=True):
        text = trained.corpus.source_vocabulary.decode(row.tolist())
        ids, count = encode_source(trained, text)
        assert ids.tolist() == [row[:length].tolist()]
        assert count.tolist() == [length]


def test_one_source_can_have_several_answers(lmzoo, run) -> None:
    code, out, _ = lmzoo("sample", run["seq2seq"], "--source", "zwei", "--beam", "3")
    beams = [line.split(maxsplit=1) for line in out.splitlines()]
    assert (code, len(beams)) == (0, 3)
    assert beams[0][1] == "two"
    assert [float(score) for score, *_ in beams] == sorted(
        (float(s) for s, *_ in beams), reverse=True
    )
    code, out, _ = lmzoo("sample", run["seq2seq"], "--source", "zwei", "--count", "4")
    assert (code, len(out.splitlines())) == (0, 4)
    assert "→" not in out
    # Without --source, sources of the validation split are printed with their answers.
    code, out, _ = lmzoo("sample", run["seq2seq"], "--greedy", "--count", "2")
    assert (code, out.count("→")) == (0, 2)


def test_an_invalid_source_gives_one_line(refused, run) -> None:
    long = "--source has 4 tokens; the limit of the sources of pairs is 3"
    for name, source, message in (
        ("seq2seq", "eins sieben", "'sieben' is not in the vocabulary of the sources of pairs"),
        ("seq2seq", "<end>", "'<end>'"),
        ("seq2seq", " ", "--source is empty"),
        ("seq2seq", "eins eins eins eins", long),
        ("gru", "eins", "gru reads no source"),
    ):
        assert message in refused("sample", run[name], "--source", source)
