"""A number does not depend on the process in which it is computed, which stays as it was."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import lmzoo
from lmzoo.kernels.guest import evaluating
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training
from tests.ambient import STATES, observed
from tests.toy_study import sentences as sentences

ROW = "lstm_lm"
FIELDS: dict[str, Any] = {"width": 8, "dropout_output": 0.5}


def build(sentences: Path, seed: int = 1) -> lmzoo.TextModel:
    return lmzoo.build(ROW, f"text:{sentences}", seed=seed, recipe={"batch": 16}, **FIELDS)


def numbers(sentences: Path, folder: Path) -> dict[str, Any]:
    """What all calls return; the model was in training mode before them."""
    model = build(sentences)
    found: dict[str, Any] = {"build": [p.tolist() for p in model.module.parameters()]}
    model.module.train()
    found["fit"] = [record["valid_token"] for record in model.fit(1)]
    found["stream"] = [record["train_token"] for record in model.stream(1)]
    found["test"] = model.test().token
    found["score"] = model.score("a man")
    found["sample"] = model.sample(2)
    assert model.module.training, "a call has left the module in evaluation mode"
    found["load"] = lmzoo.load_run(model.save(folder)).test().token
    pair = [
        Training(lmzoo.build("DLM46", model.corpus, width=4).module, Recipe(), s) for s in (0, 1)
    ]
    found["pack"] = [r["valid_token"] for r in KeptTrainers().train_epoch(pair, model.corpus)]
    return found


@pytest.fixture(scope="module")
def expected(sentences: Path, tmp_path_factory) -> dict[str, Any]:
    return numbers(sentences, tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("state", STATES)
def test_a_number_does_not_depend_on_the_process(state, sentences, expected, tmp_path):
    with STATES[state]():
        before = observed()
        found = numbers(sentences, tmp_path)
        after = observed()
    assert found == expected
    assert after == before


def test_two_threads_do_not_change_each_other(sentences):
    def train(seed: int):
        model = build(sentences, seed)
        found.setdefault(seed, []).append([record["valid_token"] for record in model.fit(3)])

    found: dict[int, list[Any]] = {}
    for seed in (0, 1):
        train(seed)
    threads = [threading.Thread(target=train, args=(seed,)) for seed in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(losses == found[seed][0] for seed in found for losses in found[seed])


def test_each_submodule_has_its_own_mode_again():
    module = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(1, 1)).train()
    module[1].eval()
    with evaluating(module):
        assert not module[0].training
    assert [part.training for part in module] == [True, False]
