"""`lmzoo train` with a schedule of the learning rate."""

import json

import pytest
import torch

from lmzoo.lab.store.records import CHECKPOINT, CONFIG


@pytest.fixture
def options(tmp_path):
    """Options of a short training on a small text."""
    path = tmp_path / "text.txt"
    path.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    sizes = ["corpus.length=6", "model.width=4", "recipe.batch=8"]
    options = ["--corpus", f"text:{path}", "--out", str(tmp_path / "runs")]
    return [*options, *(word for size in sizes for word in ("--set", size))]


def runs(tmp_path) -> dict[int, float]:
    """Return the epochs of each run's schedule -> the last learning rate."""
    rates = {}
    for path in (tmp_path / "runs").glob(f"*/{CONFIG}"):
        state = torch.load(path.parent / CHECKPOINT, weights_only=True)
        epochs = json.loads(path.read_text())["recipe"].get("schedule_epochs", 0)
        rates[epochs] = state["optimiser"]["param_groups"][0]["lr"]
    return rates


def test_the_rate_falls_over_the_budget(lmzoo, options, tmp_path):
    cosine = [*options, "--set", "recipe.schedule=cosine", "--set", "recipe.final_lr=0.1"]
    assert lmzoo("train", "gru", *options, "--epochs", 1)[0] == 0
    for epochs in (1, 2, 2):
        assert lmzoo("train", "gru", *cosine, "--epochs", epochs)[0] == 0
    rates = runs(tmp_path)
    assert rates.keys() == {0, 1, 2}
    assert rates[0] == 1e-2
    assert rates[1] == rates[2] == pytest.approx(1e-3)


def test_a_budget_beyond_the_schedule_is_refused_in_one_line(lmzoo, options):
    fields = ["--set", "recipe.schedule=linear", "--set", "recipe.schedule_epochs=2"]
    assert lmzoo("train", "gru", *options, *fields, "--epochs", 1)[0] == 0
    code, _, err = lmzoo("train", "gru", *options, *fields, "--epochs", 3)
    assert code == 2
    assert err.count("\n") == 1
    assert "recipe.schedule_epochs=2" in err
