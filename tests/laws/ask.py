"""How laws question a model: one fixed stream of noise, no gradients, exact comparison."""

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel, Task, initialise, scored_mask
from tests.tiny import given


def log_prob(
    model: LanguageModel,
    tokens: Tensor,
    lengths: Tensor,
    *source: Tensor,
    training: bool = False,
    noise: int = 0,
) -> Tensor:
    """The scores, with dropout and sampling drawn from one fixed stream.

    A conditional model that is given no source is given the one of `tests.tiny.given`.
    """
    model.train(training)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(noise)
        return model.log_prob(tokens, lengths, *(source or given(model, len(tokens))))


def next_log_prob(model: LanguageModel, prefix: Tensor, *source: Tensor) -> Tensor:
    """The next token's distribution in evaluation."""
    with torch.no_grad():
        return model.eval().next_log_prob(prefix, *(source or given(model, len(prefix))))


def loss(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Nats per scored token, with gradients, in whichever mode the model is."""
    scores = model.log_prob(tokens, lengths, *given(model, len(tokens)))
    return -scores.sum() / scored_mask(tokens, lengths).sum()


def cost(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """What training lowers, per scored token: the loss, unless the row has another objective."""
    raised = model.objective(tokens, lengths, *given(model, len(tokens)))
    return -raised.sum() / scored_mask(tokens, lengths).sum()


def fresh(model: LanguageModel, seed: int, task: Task | None = None) -> LanguageModel:
    """Another model of the same config, every weight poisoned before it is drawn."""
    with torch.random.fork_rng(devices=[]):
        other = type(model)(model.config, task or model.task)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(torch.nan)
    initialise(other, seed)
    return other


def repeatable(model: LanguageModel) -> bool:
    """Whether the scores are numbers and not draws."""
    tokens = torch.ones(2, model.task.length, dtype=torch.int64)
    lengths = torch.full((2,), model.task.length)
    one, other = (log_prob(model, tokens, lengths, noise=noise) for noise in (0, 1))
    return one.equal(other)


def same(found: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Both agree to the tolerance; NaN agrees with nothing."""
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}"
    apart = (found - expected).abs()
    assert (apart <= tolerance).all(), f"{what}: {apart.max():.3g} apart, {tolerance:.0e} allowed"
