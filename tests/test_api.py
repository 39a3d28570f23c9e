"""The Python interface: build, fit, score, sample, load."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch

import lmzoo
from lmzoo.data.corpus import open_corpus
from lmzoo.data.sequences import encode_sentence
from tests.toy_study import WORDS
from tests.toy_study import sentences as sentences

SIZES = {"width": 4, "emission": {"components": 3}}


def new(sentences: Path, seed: int = 0) -> lmzoo.TextModel:
    return lmzoo.build("DLM46", f"text:{sentences}", seed=seed, recipe={"batch": 16}, **SIZES)


@pytest.fixture(scope="module")
def model(sentences: Path) -> lmzoo.TextModel:
    model = new(sentences)
    model.fit(epochs=2)
    return model


def test_fit_continues_and_keeps_the_best_weights(sentences):
    one, two = (new(sentences, seed=3) for _ in range(2))
    records = [*one.fit(epochs=1), *one.fit(epochs=1)]
    again = two.fit(epochs=2)
    assert [r["valid_token"] for r in records] == [r["valid_token"] for r in again]
    assert one.test().token == two.test().token
    assert lmzoo.build("DLM46", one.corpus, **SIZES).test().token != one.test().token


def test_the_scores_of_all_sentences_of_a_length_sum_to_less_than_one(model):
    words = model.corpus.vocabulary.tokens[4:]
    total = sum(math.exp(model.score(f"{a} {b}")) for a, b in itertools.product(words, words))
    assert 0 < total < 1


def test_a_score_is_the_log_probability_of_the_sentence_and_its_end(model):
    corpus = model.corpus
    row = int((corpus.test.lengths == corpus.test.lengths.min()).nonzero()[0, 0])
    text = corpus.vocabulary.decode(corpus.test.tokens[row].tolist())
    assert model.score(text) == pytest.approx(-float(model.test().nll[row]), abs=1e-5)


def test_an_unknown_word_is_unk_or_an_error(model, tmp_path):
    with pytest.raises(lmzoo.UserError, match=r"'parks' is not in the vocabulary .* near: park"):
        model.score("a man parks")
    lines = tmp_path / "rare.txt"
    lines.write_text("a man runs\na dog runs\na cow sleeps\n" * 4 + "one rare line\n" * 2)
    fields = {"name": "text", "path": str(lines)}
    assert lmzoo.build("gru", {**fields, "unit": "char"}, width=4).corpus.unit == "character"
    corpus = open_corpus({**fields, "min_count": 3})
    tokens, lengths = encode_sentence(corpus, "a zebra runs")
    assert corpus.vocabulary.decode(tokens[0].tolist()) == "a <unk> runs"
    assert lengths.tolist() == [5]


def test_samples_are_texts_of_the_vocabulary(model):
    first, again, other = (model.sample(4, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 4
    assert {word for text in first for word in text.split()} <= {*WORDS, "<unk>"}
    assert len(set(model.sample(3, temperature=0))) == 1


def test_a_row_without_probabilities_is_refused(sentences):
    corpus = open_corpus({"name": "text", "path": str(sentences), "length": 10})
    model = lmzoo.build("masked_lm", corpus)  # its audit takes a second for a length of 60
    for call in (lambda: model.score("a man"), model.sample):
        with pytest.raises(lmzoo.UserError, match="masked_lm"):
            call()


def test_a_saved_model_continues_as_if_it_had_not_been_saved(sentences, tmp_path):
    whole, part = new(sentences), new(sentences)
    whole.fit(epochs=3)
    with pytest.raises(lmzoo.UserError, match="not trained; call fit"):
        part.save(tmp_path / "run")
    part.fit(epochs=1)
    for _ in range(2):
        folder = part.save(tmp_path / "run")
    again = lmzoo.load_run(folder)
    assert not again.module.training
    assert again.score("a man runs") == part.score("a man runs")
    again.fit(epochs=2)
    again.save(folder)
    losses = [[r["valid_token"] for r in model.records] for model in (whole, again)]
    assert losses[0] == losses[1]
    assert lmzoo.load_run(folder).to_frame()["epoch"].to_list() == [1, 2, 3]
    other = new(sentences, seed=5)
    other.fit(epochs=1)
    with pytest.raises(lmzoo.UserError, match="has another run"):
        other.save(folder)
    given = lmzoo.build("DLM46", other.corpus, **SIZES)
    given.fit(epochs=1)
    with pytest.raises(lmzoo.UserError, match="given as an object"):
        given.save(tmp_path / "x")


def test_an_epoch_is_yielded_before_the_next_one_is_trained(sentences):
    model = new(sentences)
    stream = model.stream(epochs=3)
    assert next(stream)["epoch"] == 1
    assert len(model.records) == 1
    stream.close()  # as a loop that ends early
    best = new(sentences)
    best.fit(epochs=1)
    assert model.test().token == best.test().token


def test_progress_is_one_line_with_the_loss(sentences, capsys):
    records = new(sentences).fit(epochs=2, progress=True)
    assert new(sentences).fit(epochs=1)  # stderr is no terminal
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert f"epoch 2 of 2: validation loss {records[-1]['valid_token']:.4f}, 0 s left" in shown


def test_an_unknown_field_of_a_study_is_one_line():
    with pytest.raises(lmzoo.UserError, match="no field 'sead'"):
        lmzoo.run_study(lmzoo.Study(name="x", question="?", points=()), sead=3)


def test_what_python_prints_fits_a_line(model):
    assert repr(model).startswith("mutable_mgu_mixture on text: ")
    point = lmzoo.Point("a", "DLM46")
    study = lmzoo.Study(name="x", question="Why?", points=(point,))
    shown = (model, model.corpus, model.corpus.vocabulary, study)
    assert all(len(repr(each)) < 250 and "\n" not in repr(each) for each in shown)
    assert "reference 'a'" in repr(study)


def test_an_exported_program_gives_the_scores_of_the_model(tmp_path):
    model = lmzoo.build("gru", "captions", width=4)
    file = model.export(tmp_path / "model.pt2")
    files = {"vocabulary.json": ""}
    program = torch.export.load(file, extra_files=files)
    assert json.loads(files["vocabulary.json"]) == [*model.corpus.vocabulary.tokens]
    text = "a man in a red hat is running in the street"
    tokens, lengths = encode_sentence(model.corpus, text)
    padded = torch.zeros(1, model.corpus.task.length, dtype=torch.long)
    padded[0, : tokens.shape[1]] = tokens[0]
    total = program.module()(padded, lengths).sum().item()
    assert total == pytest.approx(model.score(text), rel=1e-5)


def test_a_model_that_cannot_be_exported_is_one_line(tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise KeyError("of the\ngraph")

    model = lmzoo.build("gru", "captions", width=4)
    monkeypatch.setattr(type(model.module), "log_prob", broken)
    with pytest.raises(lmzoo.UserError, match="cannot export") as stop:
        model.export(tmp_path / "model.pt2")
    assert "\n" not in str(stop.value)
    assert not [*tmp_path.iterdir()]
