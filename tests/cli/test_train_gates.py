"""`lmzoo train --gates`: event event per epoch, without an effect on the training."""

import json
from pathlib import Path

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import MODELS
from lmzoo.data.corpus import open_corpus
from lmzoo.inspect.history import EVENT, event_fields, gate_events, series
from lmzoo.inspect.summary import equal_length_sequences, summarise_activity
from lmzoo.lab.analysis.records.load import read_events
from lmzoo.lab.store.records import RunFolder, epoch_records, find_end
from lmzoo.train.run import Run

EPOCHS = 3
LOSSES = ("epoch", "train_token", "valid_token", "valid_sentence")


@pytest.fixture
def train(lmzoo, tmp_path):
    """Train a row and return the folder of its run."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\ntwo men run\na man sits\n" * 10)
    small = ["--set", "model.width=8", "--set", "corpus.length=6", "--set", "recipe.lr=0.1"]

    def call(
        folder_name: str, name: str, *options: str, count: int = EPOCHS, code: int = 0
    ) -> Path:
        out = tmp_path / folder_name
        options = (*options, "--epochs", str(count), "--out", str(out))
        exit_code, _, err = lmzoo("train", name, "--corpus", f"text:{text}", *small, *options)
        assert exit_code == code, err
        (folder,) = out.iterdir()
        return folder

    return call


def events_on_disk(folder: Path) -> list[dict]:
    """Return the `gates` events of a run, duplicates included."""
    records = [json.loads(line) for line in (folder / "records.ndjson").read_text().splitlines()]
    return [record for record in records if record["event"] == EVENT]


@pytest.mark.parametrize("name", ["gru", "gpt"])
def test_each_event_describes_the_weights_of_its_epoch(name: str, train) -> None:
    folder = train("a", name, "--gates", count=2)
    config = RunFolder(folder).config
    corpus = open_corpus(config["corpus"], None)
    before, last = (zoo.build(MODELS.parse(config["model"]), corpus.task, 0) for _ in range(2))
    last.load_state_dict(torch.load(folder / "checkpoint.pt", weights_only=True)["weights"])
    events = events_on_disk(folder)
    assert [event["epoch"] for event in events] == [0, 1, 2]
    expected = [
        event_fields(summarise_activity(model, equal_length_sequences(corpus), name))
        for model in (before, last)
    ]
    for found, fact in zip((events[0], events[-1]), expected, strict=True):
        assert found == {"event": EVENT, "epoch": found["epoch"], **fact}
    assert expected[0] != expected[1]


@pytest.mark.parametrize("name", ["gru", "gpt"])
def test_recording_does_not_change_the_training(name: str, train) -> None:
    plain, recorded = train("a", name), train("b", name, "--gates")
    plain_losses, recorded_losses = (
        [{key: r[key] for key in LOSSES} for r in epoch_records(RunFolder(folder).records())]
        for folder in (plain, recorded)
    )
    assert plain_losses == recorded_losses
    states = [
        torch.load(folder / "checkpoint.pt", weights_only=True) for folder in (plain, recorded)
    ]
    assert all(states[0]["weights"][key].equal(states[1]["weights"][key])
               for key in states[0]["weights"])  # fmt: skip
    assert not events_on_disk(plain)


def interrupt_before(method: str, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise KeyboardInterrupt when this method of `Run` is called in this epoch."""
    original = getattr(Run, method)

    def interrupting(run: Run, *arguments: object) -> object:
        if run.epoch == epoch:
            raise KeyboardInterrupt
        return original(run, *arguments)

    monkeypatch.setattr(Run, method, interrupting)


@pytest.mark.parametrize("method", ["save_epoch", "_append", "add_event"])
def test_an_interrupted_run_has_every_event_once(method: str, train, monkeypatch) -> None:
    complete = events_on_disk(train("whole", "gru", "--gates"))
    with monkeypatch.context() as patch:
        interrupt_before(method, 2, patch)
        interrupted = events_on_disk(train("cut", "gru", "--gates", code=130))
    assert [event["epoch"] for event in interrupted] == [0, 1]
    assert events_on_disk(train("cut", "gru", "--gates")) == complete
    assert [event["epoch"] for event in complete] == [0, 1, 2, 3]
    assert (
        events_on_disk(train("cut", "gru", "--gates")) == complete
    )  # finished, so nothing is appended


def test_recording_can_start_later_and_stop_earlier(train) -> None:
    train("a", "gru", count=1)
    train("a", "gru", "--gates", count=2)
    assert [event["epoch"] for event in events_on_disk(train("a", "gru", count=3))] == [1, 2]


def test_readers_of_records_ignore_the_events(train) -> None:
    folder = train("a", "gpt", "--gates", count=2)
    records = RunFolder(folder).records()
    assert [r["epoch"] for r in epoch_records(records)] == [1, 2]
    assert find_end(records, 2)["status"] == "finished"
    written = (folder / "records.ndjson").read_bytes()
    for text, damage in ((written, 0), (written + b'{"event": "ep', 1)):
        frame, damaged = read_events([("a", text)])
        names = frame["event"].to_list()
        assert damaged.total() == damage
        assert [names.count(event) for event in ("epoch", "gates", "test", "end")] == [2, 3, 1, 1]


def test_a_row_without_activity_is_rejected_before_training(lmzoo, tmp_path) -> None:
    out = ["--out", str(tmp_path / "runs")]
    code, output, err = lmzoo("train", "ngram_count", "--gates", *out)
    assert (code, output, err.count("\n")) == (2, "", 1)
    assert "ngram_count has neither a recurrent cell nor attention" in err
    assert not (tmp_path / "runs").exists()


def test_lmzoo_gates_shows_the_epochs(train, lmzoo) -> None:
    folder = train("a", "gru", "--gates")
    code, out, _ = lmzoo("gates", str(folder), "--json")
    epochs = json.loads(out)["epochs"]
    assert code == 0
    assert epochs == [
        {k: v for k, v in event.items() if k != "event"} for event in events_on_disk(folder)
    ]

    _, out, _ = lmzoo("gates", str(folder))
    z = next(line.split() for line in out.splitlines() if "gate z" in line and "mean" in line)
    means = [next(g["mean"] for g in event["gates"] if g["name"] == "z") for event in epochs]
    assert z == ["cell", "gate", "z", "mean", *(f"{mean:.3f}" for mean in means)]


def test_series_have_one_value_per_event() -> None:
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
    found = {(s.module, s.part, s.statistic): s.values for s in series(gate_events(records))}
    assert found == {
        ("cell", "gate z", "mean"): [0.5, 0.7],
        ("cell", "gate z", "spread"): [0.1, 0.1],
        ("cell", "gate z", "saturated"): [0.0, 0.0],
        ("cell", "state 1", "norm"): [2.0, None],
        ("top", "head 1", "entropy"): [1.0, 0.5],
        ("top", "head 1", "‖q‖"): [3.0, 3.0],
        ("top", "head 1", "‖k‖"): [4.0, 4.0],
    }


def test_nested_non_finite_numbers_are_written_as_null(tmp_path) -> None:
    folder = RunFolder(tmp_path)
    head = {"layer": "top", "entropy": float("nan"), "widest": [1.0, float("-inf")]}
    folder.append({"event": EVENT, "epoch": 0, "heads": [head]})
    (found,) = folder.records()
    assert found["heads"] == [{"layer": "top", "entropy": None, "widest": [1.0, None]}]
