"""`train --gates`: every epoch is looked at once, as it was, and trains as if unseen."""

import json
import struct
from pathlib import Path

import pytest
import torch

from lmzoo import zoo
from lmzoo.analysis.load import read_events
from lmzoo.contract import MODELS
from lmzoo.data.open import open_corpus
from lmzoo.inspect.history import EVENT, facts, measured, series
from lmzoo.inspect.summary import equal_length_sequences, summarise_activity
from lmzoo.store.records import RunFolder, epoch_records, find_end
from lmzoo.train.run import Run

EPOCHS = 3
LOSSES = ("epoch", "train_token", "valid_token", "valid_sentence")


@pytest.fixture
def train(lmzoo, tmp_path):
    """Train a row for so many epochs in a folder of that name; the run's folder."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\ntwo men run\na man sits\n" * 10)
    small = ["--set", "model.width=8", "--set", "corpus.length=6", "--set", "recipe.lr=0.1"]

    def call(where: str, name: str, *options: str, count: int = EPOCHS, code: int = 0) -> Path:
        out = tmp_path / where
        options = (*options, "--epochs", str(count), "--out", str(out))
        said, _, err = lmzoo("train", name, "--corpus", f"text:{text}", *small, *options)
        assert said == code, err
        (folder,) = out.iterdir()
        return folder

    return call


def lines(folder: Path) -> list[dict]:
    """The looks as they lie on disk, doubled ones included."""
    every = [json.loads(line) for line in (folder / "records.ndjson").read_text().splitlines()]
    return [one for one in every if one["event"] == EVENT]


@pytest.mark.parametrize("name", ["gru", "gpt"])
def test_each_look_is_at_the_weights_of_its_epoch(name: str, train) -> None:
    folder = train("a", name, "--gates", count=2)
    config = RunFolder(folder).config
    corpus = open_corpus(config["corpus"], None)
    before, last = (zoo.build(MODELS.read(config["model"]), corpus.task, 0) for _ in range(2))
    last.load_state_dict(torch.load(folder / "checkpoint.pt", weights_only=True)["weights"])
    looks = lines(folder)
    assert [one["epoch"] for one in looks] == [0, 1, 2]
    expected = [
        facts(summarise_activity(model, equal_length_sequences(corpus), name))
        for model in (before, last)
    ]
    for found, fact in zip((looks[0], looks[-1]), expected, strict=True):
        assert found == {"event": EVENT, "epoch": found["epoch"], **fact}
    assert expected[0] != expected[1]


@pytest.mark.parametrize("name", ["gru", "gpt"])
def test_nothing_is_trained_otherwise_for_being_looked_at(name: str, train) -> None:
    unseen, seen = train("a", name), train("b", name, "--gates")
    one, other = (
        [{key: r[key] for key in LOSSES} for r in epoch_records(RunFolder(folder).records())]
        for folder in (unseen, seen)
    )
    assert one == other
    states = [torch.load(folder / "checkpoint.pt", weights_only=True) for folder in (unseen, seen)]
    assert all(states[0]["weights"][key].equal(states[1]["weights"][key])
               for key in states[0]["weights"])  # fmt: skip
    assert not lines(unseen)


def _dies(moment: str, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process be stopped where it is about to write something of this epoch."""
    true = getattr(Run, moment)

    def dying(run: Run, *given: object) -> object:
        if run.epoch == epoch:
            raise KeyboardInterrupt
        return true(run, *given)

    monkeypatch.setattr(Run, moment, dying)


@pytest.mark.parametrize("moment", ["_save", "_append", "tell"])
def test_a_run_that_was_killed_has_every_look_once(moment: str, train, monkeypatch) -> None:
    whole = lines(train("whole", "gru", "--gates"))
    with monkeypatch.context() as patch:
        _dies(moment, 2, patch)
        cut = lines(train("cut", "gru", "--gates", code=130))
    assert [one["epoch"] for one in cut] == [0, 1]
    assert lines(train("cut", "gru", "--gates")) == whole
    assert [one["epoch"] for one in whole] == [0, 1, 2, 3]
    assert lines(train("cut", "gru", "--gates")) == whole  # there is nothing left to do


def test_looks_may_begin_later_and_stop_before(train) -> None:
    train("a", "gru", count=1)
    train("a", "gru", "--gates", count=2)
    assert [one["epoch"] for one in lines(train("a", "gru", count=3))] == [1, 2]


def test_a_look_disturbs_no_reader_of_records(train) -> None:
    folder = train("a", "gpt", "--gates", count=2)
    records = RunFolder(folder).records()
    assert [r["epoch"] for r in epoch_records(records)] == [1, 2]
    assert find_end(records, 2)["status"] == "finished"
    written = (folder / "records.ndjson").read_bytes()
    for text, damage in ((written, 0), (written + b'{"event": "ep', 1)):
        frame, damaged = read_events([("a", text)])
        told = frame["event"].to_list()
        assert damaged == damage
        assert [told.count(event) for event in ("epoch", "gates", "test", "end")] == [2, 3, 1, 1]


def test_a_row_with_nothing_to_look_at_is_refused_before_it_is_trained(lmzoo, tmp_path) -> None:
    out = ["--out", str(tmp_path / "runs")]
    code, said, err = lmzoo("train", "ngram_count", "--gates", *out)
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert "ngram_count has neither a recurrent cell nor attention" in err
    assert not (tmp_path / "runs").exists()


def test_gates_of_the_run_shows_its_epochs(train, lmzoo, tmp_path) -> None:
    folder = train("a", "gru", "--gates")
    code, out, _ = lmzoo("gates", str(folder), "--json")
    told = json.loads(out)["epochs"]
    assert code == 0
    assert told == [{k: v for k, v in one.items() if k != "event"} for one in lines(folder)]

    code, out, _ = lmzoo("gates", str(folder), "--picture", str(tmp_path / "new" / "epochs.png"))
    assert code == 0
    z = next(line.split() for line in out.splitlines() if "gate z" in line and "mean" in line)
    means = [next(g["mean"] for g in one["gates"] if g["name"] == "z") for one in told]
    assert z == ["cell", "gate", "z", "mean", *(f"{mean:.3f}" for mean in means)]
    head = (tmp_path / "new" / "epochs.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", head[16:])) > 300

    unseen = train("b", "gru", count=1)
    code, out, err = lmzoo("gates", str(unseen), "--picture", str(tmp_path / "none.png"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "has no epochs to draw" in err
    assert not (tmp_path / "none.png").exists()
    code, out, err = lmzoo("gates", str(folder), "--picture", str(tmp_path / "epochs.pdf"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "epochs.pdf does not end in .png" in err


def test_series_are_one_number_of_one_thing() -> None:
    def event(epoch: int, mean: float, norms: list[float | None]) -> dict:
        gate = {"cell": "cell", "name": "z", "mean": mean, "spread": 0.1, "saturated": 0.0}
        head = {"layer": "top", "head": 0, "entropy": 1.0 / epoch, "widest": 2.0,
                "query_norm": 3.0, "key_norm": 4.0}  # fmt: skip
        state = {"cell": "cell", "norms": [norms]}
        return {"event": EVENT, "epoch": epoch, "gates": [gate], "states": [state], "heads": [head]}

    records = [
        event(2, 0.7, [1.0, None]),
        {"event": "epoch", "epoch": 1},
        event(1, 0.5, [1.0, 3.0]),
    ]
    found = {(s.where, s.what, s.fact): s.values for s in series(measured(records))}
    assert found == {
        ("cell", "gate z", "mean"): [0.5, 0.7],
        ("cell", "gate z", "spread"): [0.1, 0.1],
        ("cell", "gate z", "saturated"): [0.0, 0.0],
        ("cell", "state 1", "norm"): [2.0, None],
        ("top", "head 1", "entropy"): [1.0, 0.5],
        ("top", "head 1", "‖q‖"): [3.0, 3.0],
        ("top", "head 1", "‖k‖"): [4.0, 4.0],
    }


def test_a_number_that_is_not_finite_is_null_however_deep_it_stands(tmp_path) -> None:
    folder = RunFolder(tmp_path)
    head = {"layer": "top", "entropy": float("nan"), "widest": [1.0, float("-inf")]}
    folder.append({"event": EVENT, "epoch": 0, "heads": [head]})
    (found,) = folder.records()
    assert found["heads"] == [{"layer": "top", "entropy": None, "widest": [1.0, None]}]
