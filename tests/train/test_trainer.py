"""Training: a stream of records, resumable to the bit, honest about divergence."""

import dataclasses
import io
import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.train.evaluate import evaluate
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import Training, fit

SMALL = Recipe(batch=16)
TIMELESS = ("seconds", "tokens_per_second")


def _records(stream) -> list[dict]:
    return [{k: v for k, v in record.items() if k not in TIMELESS} for record in stream]


def _fresh(corpus, seed=0):
    config = zoo.config("DLM46", width=4, emission={"components": 3})
    return zoo.build(config, corpus.task, seed)


def test_it_learns(model, corpus):
    records = _records(fit(Training(model, SMALL, seed=0), corpus, 12))
    assert [r["epoch"] for r in records] == list(range(1, 13))
    assert records[-1]["valid_token"] < records[0]["valid_token"] - 0.2


def test_cut_and_continued_is_the_same_to_the_bit(corpus, tmp_path):
    whole = Training(_fresh(corpus), SMALL, seed=3)
    expected = _records(fit(whole, corpus, 6))

    first = Training(_fresh(corpus), SMALL, seed=3)
    seen = _records(fit(first, corpus, 2))
    torch.save(first.dump(), tmp_path / "state.pt")
    second = Training(_fresh(corpus, seed=9), SMALL, seed=3)
    second.load(torch.load(tmp_path / "state.pt", weights_only=True))
    seen += _records(fit(second, corpus, 6))

    assert seen == expected
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name


def test_another_seed_sees_another_order(corpus):
    one, two = (_records(fit(Training(_fresh(corpus), SMALL, s), corpus, 1)) for s in (0, 1))
    assert one != two


def test_training_leaves_the_global_generator_alone(model, corpus):
    before = torch.random.get_rng_state()
    list(fit(Training(model, SMALL, seed=0), corpus, 1))
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_diverged_run_says_so_and_stops(model, corpus):
    with torch.no_grad():
        model.embedding.weight.fill_(math.inf)
    training = Training(model, SMALL, seed=0)
    records = list(fit(training, corpus, 5))
    assert len(records) == 1
    assert training.diverged
    assert records[0]["train_token"] is records[0]["valid_token"] is None


def test_the_best_weights_are_those_of_the_best_epoch(corpus):
    training = Training(_fresh(corpus), Recipe(batch=16, lr=0.3), seed=0)
    losses, weights = [], []
    for record in fit(training, corpus, 8):
        losses.append(record["valid_token"])
        weights.append({k: v.clone() for k, v in training.model.state_dict().items()})
    best = losses.index(min(losses))
    assert training.best_epoch == best + 1
    for name, value in training.best_weights.items():
        assert torch.equal(value, weights[best][name])


def test_best_weights_that_are_the_newest_are_written_once_and_outlive_worse_epochs(corpus):
    training = Training(_fresh(corpus), Recipe(batch=16, lr=0.03), seed=0)
    next(fit(training, corpus, 1))
    assert training.best_epoch == 1
    once, twice = io.BytesIO(), io.BytesIO()
    torch.save(state := training.dump(), once)
    again = {**state["best"], "weights": training.best_weights}
    torch.save({**state, "best": again}, twice)
    assert len(once.getvalue()) < 0.9 * len(twice.getvalue())
    once.seek(0)
    goes_on = Training(_fresh(corpus), Recipe(batch=16, lr=3.0), seed=0)
    goes_on.load(torch.load(once, weights_only=True))
    expected = {name: value.clone() for name, value in training.best_weights.items()}
    assert next(fit(goes_on, corpus, 2))["valid_token"] > goes_on.best_loss
    later = io.BytesIO()
    torch.save(goes_on.dump(), later)
    later.seek(0)
    for kept in (goes_on.best_weights, torch.load(later, weights_only=True)["best"]["weights"]):
        assert all(torch.equal(kept[name], value) for name, value in expected.items())


def test_published_gradients_pile_up_within_an_epoch_and_not_across(corpus):
    """With plain descent, step i moves by g_1 + ... + g_i: checked on two steps by hand."""
    recipe = dataclasses.replace(RECIPES["published"], batch=30)
    training = Training(_fresh(corpus), recipe, seed=0)
    gradients = []
    step = training.optimiser.step

    def spy():
        gradients.append([p.grad.clone() for p in training.model.parameters()])
        for group in training.optimiser.param_groups:
            group["lr"] = 0.0  # weights stand still, so the gradients of an epoch repeat
        step()

    training.optimiser.step = spy
    list(fit(training, corpus, 2))
    sums = [sum(float(g.abs().sum()) for g in one) for one in gradients]
    assert len(sums) == 4
    alone = Training(_fresh(corpus), dataclasses.replace(recipe, accumulate="step"), seed=0)
    singles = []
    weights = list(alone.model.parameters())
    alone.optimiser.step = lambda: singles.append([p.grad.clone() for p in weights])
    list(fit(alone, corpus, 1))
    for piled, first, second in zip(gradients[1], *singles, strict=True):
        torch.testing.assert_close(piled, first + second)


@pytest.mark.parametrize(("clip", "bound"), [(0.05, 0.05), (None, math.inf)])
def test_the_gradient_norm_is_clipped(model, corpus, clip, bound):
    training = Training(model, dataclasses.replace(SMALL, clip=clip), seed=0)
    norms = []
    step = training.optimiser.step
    training.optimiser.step = lambda: (
        norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))),
        step(),
    )
    list(fit(training, corpus, 1))
    assert all(norm <= bound * 1.001 for norm in norms)
    assert clip is not None or max(norms) > 0.05


def test_warmup_multiplies_the_rate_by_the_share_of_steps(model, corpus):
    training = Training(model, dataclasses.replace(SMALL, warmup=8, lr=0.1), seed=0)
    rates = []
    step = training.optimiser.step
    training.optimiser.step = lambda: (
        rates.append(training.optimiser.param_groups[0]["lr"]),
        step(),
    )
    list(fit(training, corpus, 3))
    assert rates == pytest.approx([0.1 * min(1, i / 8) for i in range(1, len(rates) + 1)])


def test_both_metrics_are_their_definitions(model, corpus):
    losses = evaluate(model, corpus.test, batch=7)
    with torch.no_grad():
        nll = -model.log_prob(corpus.test.tokens, corpus.test.lengths).double().sum(1)
    n = (corpus.test.lengths - 1).double()
    assert losses.token == pytest.approx(float(nll.sum() / n.sum()), abs=1e-6)
    assert losses.sentence == pytest.approx(float((nll / n).mean()), abs=1e-6)
    assert losses.tokens == corpus.test.scored
    torch.testing.assert_close(losses.nll, nll, atol=1e-5, rtol=0)


def test_the_metrics_coincide_where_all_lengths_are_equal(model, corpus):
    same = dataclasses.replace(corpus.test, lengths=torch.full_like(corpus.test.lengths, 8))
    losses = evaluate(model, same)
    assert losses.token == pytest.approx(losses.sentence, abs=1e-9)
    assert evaluate(model, corpus.test).token != pytest.approx(
        evaluate(model, corpus.test).sentence, abs=1e-4
    )
