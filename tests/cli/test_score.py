"""`lmzoo score`: the score of a text by a trained run."""

import json
import shutil

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.contract import END, START
from lmzoo.data.corpus import open_corpus
from lmzoo.train.checkpoint import checkpoint_bytes, read_checkpoint
from lmzoo.train.trained import load_run
from tests.cases import cases
from tests.cli.run_lmzoo import run_lmzoo
from tests.data.test_tokenisers import TEXT


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder with a run of gru on sentences with rare words, and one of characters."""
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "own.txt"
    text.write_text("a man runs\na dog sits\ntwo men run\n" * 20 + "a cow moos\nan owl flies\n")
    small = ["--corpus", f"text:{text}", "--set", "model.width=4", "--epochs", "1"]
    for name, options in OPTIONS.items():
        words = small + options.split()
        assert run_lmzoo("train", "gru", "--out", folder / name, words) == 0
    return folder


OPTIONS = {
    "words": "--set corpus.length=6 --set corpus.min_count=5",
    "letters": "--set corpus.length=20 --set corpus.unit=char",
}


@pytest.fixture
def score(printed, runs):
    """Run `lmzoo score` of the run on words and return its stdout."""

    def call(*arguments):
        return printed("score", "gru", arguments, "--runs", runs / "words")

    return call


@pytest.fixture
def run(runs, tmp_path):
    """Return a copy of the run on words."""
    [words] = (runs / "words").iterdir()
    return shutil.copytree(words, tmp_path / words.name)


def test_the_sum_is_the_log_probability_of_the_model(score, run):
    first, second = json.loads(score("a man runs", "two men", "--json"))
    trained = load_run(run)
    words = trained.corpus.vocabulary.encode(["a", "man", "runs"])
    tokens = torch.tensor([[START] + words + [END]])
    scores = trained.model.log_prob(tokens, torch.tensor([5]))
    expected = scores.sum().item()
    assert expected < 0
    # The end of the sentence is scored, too.
    assert first["total"] == pytest.approx(expected, rel=1e-5)
    assert first["per_token"] == pytest.approx(expected / 4, rel=1e-5)
    assert first["tokens"] == ["a", "man", "runs", "<end>"]
    assert first["score"] == "exact"
    assert first["unknown"] == []
    assert len(second["log_probs"]) == 3


def test_it_shows_each_token_and_names_unknown_words(score):
    out = score("a unicorn runs")
    _, *lines = out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["a", "<unk>", "runs", "<end>"]
    assert "not in the vocabulary: unicorn" in out
    assert "score: exact log-likelihood" in out


@cases("cli/cases.toml", "no_text", "store, text, message")
def test_invalid_text_gives_one_line(refused, runs, store, text, message):
    assert message in refused("score", "gru", text, "--runs", runs / store)


@pytest.fixture
def home(printed, tmp_path, monkeypatch):
    """Return the folder of a run that read a text by a relative path; the user is elsewhere."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "own.txt").write_text("a man runs\na dog sits\n" * 20)
    monkeypatch.chdir(home)
    small = ("--set", "model.width=4", "--epochs", "1")
    printed("train", "gru", "--corpus", "text:own.txt", small)
    (tmp_path / "elsewhere").mkdir()
    # From here, the relative path leads nowhere.
    monkeypatch.chdir(tmp_path / "elsewhere")
    return home


def test_a_run_finds_its_text_from_another_folder(printed, home):
    printed("score", "gru", "a dog runs", "--runs", home / "runs/single")


def test_a_text_that_moved_is_said_to_be_relative(refused, home):
    (home / "own.txt").rename(home / "moved.txt")
    error = refused("score", "gru", "a dog runs", "--runs", home / "runs/single")
    assert "relative to the folder in which the run was trained" in error


def test_the_weights_of_another_run_are_refused_in_one_line(refused, runs, run):
    (letters,) = (runs / "letters").iterdir()
    state = read_checkpoint((letters / "checkpoint.pt").read_bytes())
    (run / "checkpoint.pt").write_bytes(checkpoint_bytes(state))
    error = refused("score", run, "a man runs")
    assert "belongs to run" in error


def test_every_command_that_reads_a_text_says_what_it_lost(lmzoo, tmp_path):
    """On stderr, once for each text, so that results can be piped."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits on the mat\ntwo men run\n" * 20)
    corpus = ("--corpus", f"text:{text}", "--set")
    small = ("model.width=8", "--set", "corpus.length=6", "--epochs", "1")
    code, _, _ = lmzoo("train", "elmo", corpus, small, "--out", tmp_path / "runs")
    assert code == 0
    (run,) = (tmp_path / "runs").iterdir()
    for command in (("score", run, "a man runs", "--json"), ("sample", run, "--count", "1")):
        code, out, err = lmzoo(command)
        assert code == 0
        # Of the sizes of the splits.
        assert err.count(" train, ") == 1, command
        assert "are lost" in err
        assert " train, " not in out


def test_a_run_is_opened_with_its_best_weights(run):
    file = run / "checkpoint.pt"
    state = torch.load(file, weights_only=True)
    best = state["best"]["weights"]
    name = next(iter(best))
    # Now the best weights are not the last ones.
    best[name] += 1
    torch.save(state, file)
    trained = load_run(run)
    assert trained.row_name == "gru"
    assert trained.model.state_dict()[name].equal(best[name])
    assert not trained.model.training


def test_a_damaged_checkpoint_is_refused(run):
    file = run / "checkpoint.pt"
    # As a copy that was interrupted.
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"checkpoint\.pt is damaged"):
        load_run(run)


def change_config(run, *removed: str, **changes: str) -> None:
    file = run / "config.json"
    config = json.loads(file.read_text()) | changes
    for name in removed:
        del config[name]
    file.write_text(json.dumps(config))


def test_a_config_with_a_wrong_checksum_is_refused(run):
    change_config(run, fingerprint="0")
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        load_run(run)


def test_a_corpus_that_changed_is_refused(run):
    # Without its checksum, a change of the config is not seen.
    change_config(run, "crc", fingerprint="0")
    with pytest.raises(UserError, match="not the one that the run was trained on"):
        load_run(run)


@pytest.mark.parametrize("key", ["model", "corpus", "fingerprint"])
def test_a_config_that_lacks_a_key_is_refused_in_one_line(refused, run, key):
    change_config(run, "crc", key)
    assert f"no '{key}'" in refused("score", run, "a man")


UNITS = [{"unit": "char"}, {"unit": "word"}, {"unit": "byte"}, {"unit": "bpe", "vocab": 290}]


@pytest.fixture(params=UNITS, ids=str)
def stream(request, printed, tmp_path):
    """Return the corpus of a text by one unit, and the folder of a run on it."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    fields = request.param | {"block": 24}
    options = ["--corpus", f"stream:{text}", "--set", "model.width=4", "--epochs", 1]
    for name, value in fields.items():
        options += ["--set", f"corpus.{name}={value}"]
    printed("train", "gru", options, "--out", tmp_path / "runs")
    corpus = open_corpus({"name": "stream", "path": str(text)} | fields)
    return corpus, tmp_path / "runs"


def test_a_run_on_a_stream_scores_a_text(lmzoo, stream):
    corpus, runs = stream
    phrase = "the cat sees 3 mäuse"
    code, out, err = lmzoo("score", "gru", phrase, "--json", "--runs", runs)
    (scored,) = json.loads(out)
    assert code == 0
    # The text repeats its lines.
    assert "also stand in training" in err
    assert scored["tokens"] == corpus.vocabulary.split(phrase)


def test_a_run_on_a_stream_continues_a_text(printed, stream):
    _, runs = stream
    out = printed("sample", "gru", "--prefix", "the cat", "--count", 2, "--runs", runs)
    assert out.startswith("the cat")
