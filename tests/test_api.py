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
    recipe = {"batch": 16}
    return lmzoo.build("DLM46", f"text:{sentences}", seed=seed, recipe=recipe, **SIZES)


@pytest.fixture(scope="module")
def model(sentences: Path) -> lmzoo.TextModel:
    model = new(sentences)
    model.fit(epochs=2)
    return model


def test_fit_continues_and_keeps_the_best_weights(sentences):
    in_two_calls = new(sentences, seed=3)
    in_one_call = new(sentences, seed=3)
    in_two_calls.fit(epochs=1)
    in_two_calls.fit(epochs=1)
    in_one_call.fit(epochs=2)
    # Both go through the same batches.
    assert losses_of(in_two_calls) == losses_of(in_one_call)
    assert in_two_calls.test().token == in_one_call.test().token


def losses_of(model: lmzoo.TextModel) -> list[float]:
    return [record["valid_token"] for record in model.records]


def test_training_changes_the_test_loss(model):
    untrained = lmzoo.build("DLM46", model.corpus, **SIZES)
    assert untrained.test().token != model.test().token


def test_the_scores_of_all_sentences_of_a_length_sum_to_less_than_one(model):
    words = model.corpus.vocabulary.tokens[4:]
    total = 0.0
    for pair in itertools.product(words, words):
        score = model.score(" ".join(pair))
        total += math.exp(score)
    # Sentences of other lengths have the rest.
    assert 0 < total < 1


def test_a_score_is_the_log_probability_of_the_sentence_and_its_end(model):
    test = model.corpus.test
    row = int(test.lengths.argmin())  # the others may be cut
    ids = test.tokens[row].tolist()
    text = model.corpus.vocabulary.decode(ids)
    nats = float(model.test().nll[row])
    assert model.score(text) == pytest.approx(-nats, abs=1e-5)


def test_an_unknown_word_is_an_error_if_training_has_none(model):
    with pytest.raises(lmzoo.UserError, match=r"'parks' is not in the vocabulary .* near: park"):
        model.score("a man parks")


@pytest.fixture
def rare(tmp_path) -> dict[str, str]:
    """Return the corpus of a text with rare words."""
    lines = tmp_path / "rare.txt"
    lines.write_text("a man runs\na dog runs\na cow sleeps\n" * 4 + "one rare line\n" * 2)
    return {"name": "text", "path": str(lines)}


def test_a_corpus_is_given_by_its_fields(rare):
    model = lmzoo.build("gru", rare | {"unit": "char"}, width=4)
    assert model.corpus.unit == "character"


def test_an_unknown_word_is_unk_if_training_has_it(rare):
    corpus = open_corpus(rare | {"min_count": 3})
    tokens, lengths = encode_sentence(corpus, "a zebra runs")
    ids = tokens[0].tolist()
    assert corpus.vocabulary.decode(ids) == "a <unk> runs"
    # With <start> and <end>.
    assert lengths.tolist() == [5]


def test_samples_are_texts_of_the_vocabulary(model):
    first = model.sample(4, seed=1)
    again = model.sample(4, seed=1)
    other = model.sample(4, seed=2)
    assert first == again != other
    assert len(first) == 4
    words = set(" ".join(first).split())
    # `<unk>` is a word of training here.
    assert words <= set(WORDS) | {"<unk>"}


def test_samples_at_temperature_zero_are_one_text(model):
    samples = model.sample(3, temperature=0)
    assert len(set(samples)) == 1


def test_a_row_without_probabilities_is_refused(sentences):
    corpus = open_corpus({"name": "text", "path": str(sentences), "length": 10})
    model = lmzoo.build("masked_lm", corpus)  # its audit takes a second for a length of 60
    with pytest.raises(lmzoo.UserError, match="masked_lm"):
        model.score("a man")
    with pytest.raises(lmzoo.UserError, match="masked_lm"):
        model.sample()


def test_a_saved_model_continues_as_if_it_had_not_been_saved(sentences, tmp_path):
    whole = new(sentences)
    part = new(sentences)
    whole.fit(epochs=3)
    part.fit(epochs=1)
    folder = part.save(tmp_path / "run")
    again = lmzoo.load_run(folder)
    again.fit(epochs=2)
    again.save(folder)
    assert losses_of(again) == losses_of(whole)
    records = lmzoo.load_run(folder).to_frame()
    assert records["epoch"].to_list() == [1, 2, 3]


def test_a_loaded_model_scores_as_the_saved_one(sentences, tmp_path):
    model = new(sentences)
    model.fit(epochs=1)
    model.save(tmp_path / "run")
    # A run may be saved again.
    folder = model.save(tmp_path / "run")
    again = lmzoo.load_run(folder)
    # It is loaded to be used.
    assert not again.module.training
    assert again.score("a man runs") == model.score("a man runs")


def test_a_model_that_is_not_trained_is_not_saved(sentences, tmp_path):
    untrained = new(sentences)
    with pytest.raises(lmzoo.UserError, match="not trained; call fit"):
        untrained.save(tmp_path / "run")


def test_a_model_is_not_saved_over_another_run(sentences, model, tmp_path):
    folder = model.save(tmp_path / "run")
    other = new(sentences, seed=5)
    other.fit(epochs=1)
    with pytest.raises(lmzoo.UserError, match="has another run"):
        other.save(folder)


def test_a_model_of_a_corpus_that_has_no_name_is_not_saved(model, tmp_path):
    given = lmzoo.build("DLM46", model.corpus, **SIZES)
    given.fit(epochs=1)
    with pytest.raises(lmzoo.UserError, match="given as an object"):
        given.save(tmp_path / "run")


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
    _, last = new(sentences).fit(epochs=2, progress=True)
    assert new(sentences).fit(epochs=1)  # stderr is no terminal
    shown = capsys.readouterr().err
    loss = last["valid_token"]
    assert shown.count("\n") == 1
    assert f"epoch 2 of 2: validation loss {loss:.4f}, 0 s left" in shown


def test_an_unknown_field_of_a_study_is_one_line():
    study = lmzoo.Study(name="x", question="?", points=())
    with pytest.raises(lmzoo.UserError, match="no field 'sead'"):
        lmzoo.run_study(study, sead=3)


def test_what_python_prints_fits_a_line(model):
    assert repr(model).startswith("mutable_mgu_mixture on text: ")
    point = lmzoo.Point("a", "DLM46")
    study = lmzoo.Study(name="x", question="Why?", points=(point,))
    shown = (model, model.corpus, model.corpus.vocabulary, study)
    for each in shown:
        assert len(repr(each)) < 250
        assert "\n" not in repr(each)
    assert "reference 'a'" in repr(study)


def test_an_exported_program_gives_the_scores_of_the_model(tmp_path):
    model = lmzoo.build("gru", "captions", width=4)
    file = model.export(tmp_path / "model.pt2")
    files = {"vocabulary.json": ""}
    program = torch.export.load(file, extra_files=files)
    assert json.loads(files["vocabulary.json"]) == list(model.corpus.vocabulary.tokens)
    text = "a man in a red hat is running in the street"
    tokens, lengths = encode_sentence(model.corpus, text)
    # A program has one shape.
    _, length = tokens.shape
    padded = torch.zeros(1, model.corpus.task.length).long()
    padded[:, :length] = tokens
    scores = program.module()(padded, lengths)
    assert scores.sum().item() == pytest.approx(model.score(text), rel=1e-5)


def test_a_model_that_cannot_be_exported_is_one_line(tmp_path, monkeypatch):
    def broken(*_: object):
        # torch's errors may have many lines.
        raise KeyError("of the\ngraph")

    model = lmzoo.build("gru", "captions", width=4)
    monkeypatch.setattr(type(model.module), "log_prob", broken)
    with pytest.raises(lmzoo.UserError, match="cannot export") as stop:
        model.export(tmp_path / "model.pt2")
    assert "\n" not in str(stop.value)
    assert not list(tmp_path.iterdir())
