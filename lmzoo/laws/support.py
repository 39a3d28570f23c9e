"""Functions that the laws share: model calls with fixed noise, and comparisons of tensors."""

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel, Task
from lmzoo.functional.parameters import initialise
from lmzoo.functional.token_scores import scored_mask
from lmzoo.laws.tiny import default_source


def log_prob(
    model: LanguageModel,
    tokens: Tensor,
    lengths: Tensor,
    *source: Tensor,
    training: bool = False,
    noise: int = 0,
) -> Tensor:
    """Return the scores, without gradients; `noise` is the seed of dropout and sampling.

    A conditional model without a source gets `lmzoo.laws.tiny.default_source`.
    """
    model.train(training)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(noise)
        return model.log_prob(tokens, lengths, *(source or default_source(model, len(tokens))))


def next_log_prob(model: LanguageModel, prefix: Tensor, *source: Tensor) -> Tensor:
    """Return the distribution of the next token, in evaluation mode."""
    with torch.no_grad():
        return model.eval().next_log_prob(prefix, *(source or default_source(model, len(prefix))))


def loss(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return nats per scored token, with gradients, in the current mode of the model."""
    scores = model.log_prob(tokens, lengths, *default_source(model, len(tokens)))
    return -scores.sum() / scored_mask(tokens, lengths).sum()


def training_loss(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the negative training objective per scored token, with gradients."""
    objective = model.objective(tokens, lengths, *default_source(model, len(tokens)))
    return -objective.sum() / scored_mask(tokens, lengths).sum()


def new_model(model: LanguageModel, seed: int, task: Task | None = None) -> LanguageModel:
    """Return a model of the same config; all weights are NaN before they are drawn."""
    with torch.random.fork_rng(devices=[]):
        other = type(model)(model.config, task or model.task)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(torch.nan)
    initialise(other, seed)
    return other


def is_deterministic(model: LanguageModel) -> bool:
    """Whether two evaluations with different noise give the same scores."""
    tokens = torch.ones(2, model.task.length, dtype=torch.int64)
    lengths = torch.full((2,), model.task.length)
    first, second = (log_prob(model, tokens, lengths, noise=noise) for noise in (0, 1))
    return first.equal(second)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float, name: str) -> None:
    """Assert that both tensors agree to an absolute tolerance; NaN agrees with nothing."""
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, not {expected.shape}"
    gap = (actual - expected).abs()
    assert (gap <= tolerance).all(), f"{name}: differs by {gap.max():.3g}, more than {tolerance:g}"
