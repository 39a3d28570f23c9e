"""A number does not depend on the process in which it is computed, which stays as it was."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import lmzoo
from lmzoo.data.corpus import Corpus
from lmzoo.kernels.guest import evaluating
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training
from tests.ambient import STATES, observed
from tests.toy_study import sentences as sentences

ROW = "lstm_lm"
FIELDS: dict[str, Any] = {"width": 8, "dropout_output": 0.5}


def build(sentences: Path, seed: int = 1) -> lmzoo.TextModel:
    recipe = {"batch": 16}
    return lmzoo.build(ROW, f"text:{sentences}", seed=seed, recipe=recipe, **FIELDS)


def numbers(sentences: Path, folder: Path) -> dict[str, Any]:
    """What all calls return; the model was in training mode before them."""
    model = build(sentences)
    found: dict[str, Any] = {"build": [p.tolist() for p in model.module.parameters()]}
    model.module.train()
    (epoch,) = model.fit(1)
    (next_epoch,) = model.stream(1)
    found["fit"] = epoch["valid_token"]
    found["stream"] = next_epoch["train_token"]
    found["test"] = model.test().token
    found["score"] = model.score("a man")
    found["sample"] = model.sample(2)
    assert model.module.training, "a call has left the module in evaluation mode"
    loaded = lmzoo.load_run(model.save(folder))
    found["load"] = loaded.test().token
    pair = [small_training(model.corpus, seed) for seed in (0, 1)]
    records = KeptTrainers().train_epoch(pair, model.corpus)
    found["pack"] = [record["valid_token"] for record in records]
    return found


def small_training(corpus: Corpus, seed: int) -> Training:
    model = lmzoo.build("DLM46", corpus, width=4)
    return Training(model.module, Recipe(), seed)


@pytest.fixture(scope="module")
def expected(sentences: Path, tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("plain")
    return numbers(sentences, folder)


@pytest.mark.parametrize("state", STATES)
def test_a_number_does_not_depend_on_the_process(state, sentences, expected, tmp_path):
    with STATES[state]():
        # Within the state, which the calls have to leave.
        before = observed()
        found = numbers(sentences, tmp_path)
        after = observed()
    assert found == expected
    assert after == before


def test_two_threads_do_not_change_each_other(sentences):
    def losses(seed: int) -> list[float]:
        model = build(sentences, seed)
        return [record["valid_token"] for record in model.fit(3)]

    seeds = (0, 1, 0, 1)
    first = losses(0)
    second = losses(1)
    with ThreadPoolExecutor(len(seeds)) as threads:
        found = list(threads.map(losses, seeds))
    assert found == [first, second, first, second]


def test_each_submodule_has_its_own_mode_again():
    dropout = torch.nn.Dropout()
    layer = torch.nn.Linear(1, 1).eval()
    module = torch.nn.Sequential(dropout, layer)
    with evaluating(module):
        assert not dropout.training
    assert dropout.training
    assert not layer.training
