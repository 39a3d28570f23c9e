"""Dropout of recurrent and attention rows."""

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import MODELS, Task
from lmzoo.data.corpus import Corpus
from lmzoo.laws_of_training.packing import random_corpus
from lmzoo.train.pack_compatibility import reason_not_packable
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from tests.toy_study import corpus as corpus
from tests.toy_study import corpus_fields as corpus_fields
from tests.toy_study import sentences as sentences
from tests.toy_study import study as study

RATES = ("dropout_input", "dropout_output")
TASK = Task(vocab=9, length=8)
TOKENS = torch.randint(4, 9, (6, 8), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.full((6,), 8)


def build(row="recurrent_lm", **fields):
    return zoo.build(zoo.config(row, width=8, **fields), TASK)


def score(model, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model.log_prob(TOKENS, LENGTHS)


@pytest.mark.parametrize(
    ("row", "rate"), [("gpt", "dropout_output"), *(("recurrent_lm", rate) for rate in RATES)]
)
def test_each_rate_acts_in_training_only(row, rate):
    fields = {"dropout": 0.0} if row == "gpt" else {"num_layers": 2}
    plain, noisy = (build(row, **fields, **{rate: p}) for p in (0.0, 0.5))
    noisy.load_state_dict(plain.state_dict())
    assert torch.equal(score(noisy.eval()), score(plain.eval()))
    noisy.train()
    assert torch.equal(score(noisy, 1), score(noisy, 1))
    assert not torch.equal(score(noisy, 1), score(noisy, 2))
    if row == "recurrent_lm":  # its steps drop nothing
        prefix = TOKENS[:, :3]
        assert torch.equal(noisy.next_log_prob(prefix), plain.next_log_prob(prefix))
    score(noisy, 1).sum().backward()
    weights = dict(noisy.named_parameters())
    assert all(w.grad is not None and bool(w.grad.isfinite().all()) for w in weights.values())
    assert all(isinstance(w, torch.nn.Parameter) for w in weights.values())


@pytest.mark.parametrize("row", ["recurrent_lm", "gpt"])
def test_a_training_with_dropout_resumes_bit_by_bit(row):
    rates = dict.fromkeys(RATES, 0.3) | {"num_layers": 2, "starts": 2}
    fields = rates if row == "recurrent_lm" else {"dropout_output": 0.3}
    data: Corpus = random_corpus(build())
    whole, first, second = (
        Training(build(row=row, **fields), Recipe(batch=4), 0) for _ in range(3)
    )
    expected = [record["valid_token"] for record in fit(whole, data, 4)]
    list(fit(first, data, 2))
    second.load(first.dump())
    assert [record["valid_token"] for record in fit(second, data, 4)] == expected[2:]
    pairs = zip(whole.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("rate", RATES)
def test_a_model_with_dropout_trains_alone_and_without_it_is_as_before(rate):
    assert "noise" in reason_not_packable(build(**{rate: 0.1}))
    assert reason_not_packable(build(**{rate: 0.0})) == ""
    assert rate not in MODELS.dump(build(**{rate: 0.0}).config)
    noisy = build(**{rate: 0.1}).config
    assert MODELS.parse(MODELS.dump(noisy)) == noisy
