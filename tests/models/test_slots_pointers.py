"""Pointers: they select earlier tokens only, and a chain sums over all its paths."""

from itertools import product

import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import START, Task
from lmzoo.models.slots import pointers as module
from lmzoo.models.slots.pointers import (
    chained_pointers,
    chained_pointers_reference,
    earlier,
    lag_pointer,
)
from tests.tiny import CLOSE, FINE, batch, tiny

CPU = torch.device("cpu")
ROWS = [name for name in zoo.names() if zoo.row(name).family == "slot"]


def draw(*shape, seed=0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", ROWS)
def test_pointers_are_distributions_over_earlier_tokens(name):
    model = tiny(name, vocab=5, length=7, slots=3)
    actual = model.source_pointers(batch(model.task)[0][:, :-1])
    assert (actual.masked_select(~earlier(6, CPU)) == 0).all()
    torch.testing.assert_close(actual.sum(-1), torch.ones_like(actual[..., 0]))


@pytest.mark.parametrize("name", ROWS)
def test_all_slots_of_the_first_target_point_to_start(name):
    model = tiny(name)
    actual = model.source_pointers(torch.tensor([[START, 2, 0]]))
    torch.testing.assert_close(actual[:, :, 0, 0], torch.ones(1, 2))


@pytest.mark.parametrize("name", ROWS)
def test_posterior_is_the_first_pointer(name):
    model = tiny(name, vocab=5, length=6)
    tokens, lengths = batch(model.task)
    posterior = model.posterior(tokens, lengths)
    assert posterior.shape == (len(tokens), 5, 5)
    first = model.source_pointers(tokens[:, :-1])[:, 0]
    torch.testing.assert_close(posterior[:, 2, 4], first[:, 4, 2])


def test_chained_pointer_sums_over_all_paths():
    """Compute p_N(j | t) by listing every path i_1, .., i_N = j before t."""
    sources, moves = 4, 2
    lags, first = draw(sources, sources), draw(1, sources, seed=1)
    scores = draw(moves, 1, sources, sources, seed=2, spread=2.0)
    actual = chained_pointers(lag_pointer(lags, first), scores)[0]
    for t in range(sources):
        start = torch.softmax(lags[t, : t + 1] + first[0, : t + 1], 0)
        steps = [torch.softmax(scores[n, 0, : t + 1, : t + 1], -1) for n in range(moves)]
        for n in range(moves + 1):
            expected = torch.zeros(sources, dtype=torch.float64)
            for path in product(range(t + 1), repeat=n + 1):
                weight = start[path[0]]
                for m in range(n):
                    weight = weight * steps[m][path[m], path[m + 1]]
                expected[path[-1]] += weight
            torch.testing.assert_close(actual[n, t], expected)


@pytest.mark.parametrize("sources", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_block_algorithm_equals_the_reference(sources, spread):
    """A spread of 300 nats would overflow exponentials of score differences."""
    first = lag_pointer(draw(sources, sources), draw(2, sources, seed=1)).requires_grad_()
    scores = draw(2, 2, sources, sources, seed=2, spread=spread).requires_grad_()
    weights = draw(2, 3, sources, sources, seed=3) * earlier(sources, CPU)
    actual, reference = (f(first, scores) for f in (chained_pointers, chained_pointers_reference))
    torch.testing.assert_close(actual, reference, rtol=0, atol=FINE)
    gradients = [
        torch.autograd.grad((y * weights).sum(), (first, scores)) for y in (actual, reference)
    ]
    for a, b in zip(*gradients, strict=True):
        # Masked entries of `first` are always zero, so their gradients do not matter.
        a, b = (g if g.dim() == 4 else g * earlier(sources, CPU) for g in (a, b))
        torch.testing.assert_close(a, b, rtol=0, atol=FINE)


def test_block_algorithm_stays_finite_in_single_precision(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 3)
    first = lag_pointer(draw(10, 10).float(), draw(2, 10).float())
    scores = draw(2, 2, 10, 10, spread=400.0).float().requires_grad_()
    actual = chained_pointers(first, scores)
    actual[..., 0].sum().backward()
    assert actual.isfinite().all()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    torch.testing.assert_close(actual.sum(-1), torch.ones(2, 3, 10), rtol=0, atol=CLOSE)


def test_padding_a_short_sequence_does_not_change_its_scores():
    model = zoo.build(zoo.config("chain_slot_ngram", width=4, slots=3), Task(vocab=6, length=30))
    tokens, _ = batch(Task(vocab=6, length=20))
    lengths = torch.full((len(tokens),), 9)
    torch.testing.assert_close(
        model.log_prob(tokens, lengths)[:, :9], model.log_prob(tokens[:, :9], lengths)
    )


@pytest.mark.parametrize("norm", ["time_std", "time_std_causal"])
def test_normalisers_over_time_are_refused(norm):
    with pytest.raises(ValueError, match=f"slots normalise single vectors.*{norm}"):
        zoo.config("slot_ngram", norm=norm)
