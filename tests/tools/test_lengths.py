"""Losses on windows that are longer than the blocks of the training."""

from types import SimpleNamespace

import lengths
import polars as pl
import pytest
import torch

import lmzoo


def test_a_part_of_a_window_has_the_mean_loss_of_its_characters(monkeypatch) -> None:
    """The last window may be shorter and is left out; `<start>` is not scored."""
    ids = torch.zeros(60, 131)
    ids[-1] = 9
    test = SimpleNamespace(ids=ids, lengths=torch.full((60,), 131))
    model = SimpleNamespace(log_prob=lambda ids, lengths: -(1 + ids) * torch.arange(131))
    run = SimpleNamespace(config={"corpus": {}}, model=model)
    monkeypatch.setattr(lengths, "load_run", lambda *_: run)
    monkeypatch.setattr(lengths, "open_corpus", lambda *_: SimpleNamespace(test=test))
    expected = {"1 to 64": 32.5, "65 to 128": 96.5, "129 to 130": 129.5}
    assert lengths.losses("run", None, 130) == expected


def test_intervals_are_those_of_the_chosen_runs_of_a_point(monkeypatch) -> None:
    runs = {
        "label": ["a", "a", "a", "count"], "folder": ["1", "3", "7", "9"],
        "chosen": [True, True, False, True], "parameters": [5, 5, 5, 0],
    }  # fmt: skip
    monkeypatch.setattr(lmzoo, "runs", lambda _: pl.DataFrame(runs))
    monkeypatch.setattr(lengths, "losses", lambda folder, *_: {"1 to 64": float(folder)})
    [row] = lengths.table("study", None, 64).to_dicts()
    assert (row["label"], row["loss"], row["seeds"]) == ("a", 2.0, 2)
    assert row["half"] == pytest.approx(12.7062, rel=1e-5)
