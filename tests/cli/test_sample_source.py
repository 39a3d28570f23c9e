"""`sample --source`: what a model of pairs makes of the user's own source."""

import sys
from pathlib import Path

import pytest

from lmzoo.cli.main import COMMANDS, build_app
from lmzoo.cli.sample import own_source
from lmzoo.command_line import run_app as run_app
from lmzoo.train.trained import open_run


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    words = ["eins\tone", "zwei\ttwo", "drei\tthree", "vier vier\tfour four"]
    path.write_text("\n".join(words * 30) + "\n")
    return path


@pytest.fixture(scope="module")
def run(pairs, tmp_path_factory):
    """A sequence-to-sequence model that has learned four words."""
    out = tmp_path_factory.mktemp("runs")
    options = [
        "--epochs",
        "25",
        "--set",
        "recipe.lr=0.03",
        "--set",
        "model.width=8",
        "--set",
        "recipe.batch=20",
    ]
    with pytest.MonkeyPatch.context() as patch:
        corpus = ["--corpus", f"pairs:{pairs}", "--set", "corpus.length=5"]
        for name in ("seq2seq", "gru"):
            few = options if name == "seq2seq" else ["--epochs", "1", "--set", "model.width=4"]
            patch.setattr(
                sys, "argv", ["lmzoo", "train", name, *few, *corpus, "--out", str(out / name)]
            )
            with pytest.raises(SystemExit) as stop:
                run_app(build_app(list(COMMANDS)))
            assert stop.value.code == 0
    return {name: str(next((out / name).iterdir())) for name in ("seq2seq", "gru")}


def test_it_is_the_source_that_is_translated(lmzoo, run) -> None:
    for source, target in (("eins", "one"), ("drei", "three"), ("vier vier", "four four")):
        assert lmzoo("sample", run["seq2seq"], "--greedy", "--source", source)[:2] == (
            0,
            target + "\n",
        )


def test_it_is_encoded_as_the_corpus_encodes_its_own(run) -> None:
    trained = open_run(Path(run["seq2seq"]))
    tokens, lengths = trained.corpus.valid.given
    for row, length in zip(tokens[:8], lengths[:8].tolist(), strict=True):
        text = trained.corpus.source_vocabulary.decode(row.tolist())
        found, count = own_source(trained, text)
        assert found.tolist() == [row[:length].tolist()]
        assert count.tolist() == [length]


def test_one_source_has_as_many_answers_as_are_asked_for(lmzoo, run) -> None:
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
    # Without one, the validation split's are shown with theirs.
    code, out, _ = lmzoo("sample", run["seq2seq"], "--greedy", "--count", "2")
    assert (code, out.count("→")) == (0, 2)


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("seq2seq", "eins sieben", "'sieben' is not in the vocabulary of pairs's sources"),
        ("seq2seq", "<end>", "'<end>'"),
        ("seq2seq", " ", "--source is empty"),
        ("seq2seq", "eins eins eins eins", "--source has 4 tokens, pairs has room for 3"),
        ("gru", "eins", "gru is given none"),
    ],
)
def test_what_cannot_be_a_source_is_refused_in_one_line(name, source, said, lmzoo, run) -> None:
    code, out, err = lmzoo("sample", run[name], "--source", source)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
