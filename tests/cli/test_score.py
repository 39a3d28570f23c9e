"""`lmzoo score`: the score of a text by a trained run."""

import json
import shutil

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.data.corpus import open_corpus
from lmzoo.train.checkpoint import checkpoint_bytes, read_checkpoint
from lmzoo.train.trained import load_run
from tests.cli.run_lmzoo import run_lmzoo
from tests.data.test_tokenisers import TEXT


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder with a run of gru on sentences with rare words, and one of characters."""
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "own.txt"
    text.write_text("a man runs\na dog sits\ntwo men run\n" * 20 + "a cow moos\nan owl flies\n")
    small = ["--corpus", f"text:{text}", "--set", "model.width=4", "--epochs", "1"]
    words = ["--set", "corpus.length=6", "--set", "corpus.min_count=5", "--out", folder / "words"]
    letters = ["--set", "corpus.length=20", "--set", "corpus.unit=char"]
    letters += ["--out", folder / "letters"]
    for options in (words, letters):
        assert run_lmzoo("train", "gru", *small, *options) == 0
    return folder


@pytest.fixture
def score(lmzoo, runs):
    def call(store, *arguments):
        return lmzoo("score", "gru", *arguments, "--runs", runs / store)

    return call


def test_the_sum_is_the_log_probability_of_the_model(score, runs):
    code, out, err = score("words", "a man runs", "two men", "--json")
    assert (code, "error" in err) == (0, False)
    first, second = json.loads(out)
    trained = load_run(next((runs / "words").iterdir()))
    tokens = torch.tensor([[1, *trained.corpus.vocabulary.encode(["a", "man", "runs"]), 2]])
    expected = trained.model.log_prob(tokens, torch.tensor([5])).sum().item()
    assert expected < 0
    assert first["total"] == pytest.approx(expected, rel=1e-5)
    assert first["per_token"] == pytest.approx(expected / 4, rel=1e-5)
    assert first["tokens"] == ["a", "man", "runs", "<end>"]
    assert (first["score"], first["unknown"], len(second["log_probs"])) == ("exact", [], 3)


def test_it_shows_each_token_and_names_unknown_words(score):
    code, out, err = score("words", "a unicorn runs")
    assert (code, "error" in err) == (0, False)
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["a", "<unk>", "runs", "<end>"]
    assert "not in the vocabulary: unicorn" in out
    assert "score: exact log-likelihood" in out


def test_invalid_text_gives_one_line(refused, runs):
    for store, text, message in (
        ("words", "", "the text is empty"),
        ("words", "a man runs " * 9, "the text has 27 tokens"),
        ("letters", "a zebra", "'z' is not in the vocabulary"),
    ):
        assert message in refused("score", "gru", text, "--runs", runs / store)


def test_a_run_finds_its_text_from_another_folder(lmzoo, refused, tmp_path, monkeypatch):
    home, text = tmp_path / "home", "texts/own.txt"
    (home / text).parent.mkdir(parents=True)
    (home / text).write_text("a man runs\na dog sits\n" * 20)
    monkeypatch.chdir(home)
    small = ("--set", "model.width=4", "--epochs", "1")
    assert lmzoo("train", "gru", "--corpus", f"text:{text}", *small)[0] == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert lmzoo("score", "gru", "a dog runs", "--runs", home / "runs/single")[0] == 0
    (home / text).rename(home / "moved.txt")
    error = refused("score", "gru", "a dog runs", "--runs", home / "runs/single")
    assert "relative to the folder in which the run was trained" in error


def test_the_weights_of_another_run_are_refused_in_one_line(refused, runs, tmp_path):
    (words,), (letters,) = ([*(runs / name).iterdir()] for name in ("words", "letters"))
    copy = shutil.copytree(words, tmp_path / words.name)
    state = read_checkpoint((letters / "checkpoint.pt").read_bytes())
    (copy / "checkpoint.pt").write_bytes(checkpoint_bytes(state))
    assert "belongs to run" in refused("score", copy, "a man runs")


def test_every_command_that_reads_a_text_says_what_it_lost(lmzoo, tmp_path):
    """On stderr, once for each text, so that results can be piped."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits on the mat\ntwo men run\n" * 20)
    corpus = ("--corpus", f"text:{text}", "--set")
    small = ("model.width=8", "--set", "corpus.length=6", "--epochs", "1")
    assert lmzoo("train", "elmo", *corpus, *small, "--out", tmp_path / "runs")[0] == 0
    (run,) = (tmp_path / "runs").iterdir()
    for command in (("score", run, "a man runs", "--json"), ("sample", run, "--count", "1")):
        code, out, err = lmzoo(*map(str, command))
        assert (code, err.count(" train, ")) == (0, 1), command
        assert "are lost" in err
        assert " train, " not in out


def test_a_run_is_opened_with_its_best_weights_and_its_corpus(runs, tmp_path):
    run = shutil.copytree(next((runs / "words").iterdir()), tmp_path / "run")
    file = run / "checkpoint.pt"
    state = torch.load(file, weights_only=True)
    name = next(iter(state["best"]["weights"]))
    state["best"]["weights"][name] += 1
    torch.save(state, file)
    trained = load_run(run)
    assert trained.row_name == "gru"
    assert trained.model.state_dict()[name].equal(state["best"]["weights"][name])
    assert not trained.model.training
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"checkpoint\.pt is damaged"):
        load_run(run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "fingerprint": "0"}))
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        load_run(run)
    del config["crc"]
    (run / "config.json").write_text(json.dumps({**config, "fingerprint": "0"}))
    with pytest.raises(UserError, match="not the one that the run was trained on"):
        load_run(run)


def test_a_config_that_lacks_a_key_is_refused_in_one_line(refused, runs, tmp_path):
    shutil.copytree(next((runs / "words").iterdir()), tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    del config["crc"]
    for key in ("model", "corpus", "fingerprint"):
        file.write_text(json.dumps({name: config[name] for name in config if name != key}))
        assert f"no '{key}'" in refused("score", tmp_path / "run", "a man")


def test_runs_on_words_bytes_and_byte_pairs_score_and_continue_a_text(lmzoo, tmp_path):
    text, phrase = tmp_path / "text.txt", "the cat sees 3 mäuse"
    text.write_text(TEXT, encoding="utf-8")
    for fields in (
        {"unit": "char"},
        {"unit": "word"},
        {"unit": "byte"},
        {"unit": "bpe", "vocab": 290},
    ):
        runs, fields["block"] = tmp_path / fields["unit"], 24
        settings = ("model.width=4", *(f"corpus.{name}={value}" for name, value in fields.items()))
        options = [word for setting in settings for word in ("--set", setting)]
        options += ["--corpus", f"stream:{text}", "--epochs", 1, "--out", runs]
        assert lmzoo("train", "gru", *options)[0] == 0
        code, out, err = lmzoo("score", "gru", phrase, "--json", "--runs", runs)
        assert (code, "also stand in training" in err) == (0, True)
        (scored,) = json.loads(out)
        corpus = open_corpus({"name": "stream", "path": str(text), **fields})
        assert scored["tokens"] == corpus.vocabulary.split(phrase)
        code, out, _ = lmzoo("sample", "gru", "--prefix", "the cat", "--count", 2, "--runs", runs)
        assert (code, out.startswith("the cat")) == (0, True)
