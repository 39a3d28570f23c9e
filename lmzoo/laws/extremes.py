"""Log-probabilities stay log-probabilities with large weights and in half precision."""

import contextlib
import copy
from collections.abc import Iterator

import torch

from lmzoo.contract import LanguageModel, Score
from lmzoo.functional.token_scores import of_tokens
from lmzoo.laws.tiny import (
    CLOSE,
    batch,
    every_sequence,
    log_prob,
    next_log_prob,
    training_loss,
)

FACTORS = (3.0, 10.0, 30.0)
"""Factors of all weights; at 30, mixtures have probabilities below the smallest float32."""
HALF = 0.1
"""Relative tolerance in bfloat16, which has three digits."""


def law_no_log_probability_exceeds_zero(model: LanguageModel):
    """With weights of any size, `log_prob` and `next_log_prob` are at most 0."""
    tokens, lengths = every_sequence(model.task)
    for factor in (1.0,) + FACTORS:
        with _scaled(model, factor):
            top = log_prob(model, tokens, lengths).max()
            assert top <= 0, f"weights x {factor:g}: log_prob is {top:.3g}"
            if model.score in (Score.EXACT, Score.CONDITIONAL):
                dense = next_log_prob(model, tokens[:, :2])
                top = dense.max()
                assert top <= 0, f"weights x {factor:g}: next_log_prob is {top:.3g}"


def law_large_weights_agree(model: LanguageModel):
    """With large weights `log_prob` is `next_log_prob` of the actual token, relative to its size.

    A floor below which one of them does not fall is a difference of hundreds of nats.
    """
    tokens, lengths = every_sequence(model.task)
    for factor in FACTORS:
        with _scaled(model, factor):
            scores = log_prob(model, tokens, lengths)
            largest = scores.abs().max()
            # Rounding grows with the size of the scores.
            allowed = CLOSE * (1 + largest)
            for t in range(1, model.task.length):
                dense = next_log_prob(model, tokens[:, :t])
                chosen = of_tokens(dense, tokens[:, t])
                gap = (chosen - scores[:, t]).abs()
                name = f"weights x {factor:g}: score at {t}"
                assert (gap <= allowed).all(), f"{name} differs by {gap.max():.3g} nats"


def law_runs_in_half_precision(model: LanguageModel):
    """Under CPU autocast to bfloat16 the model trains, and its float32 scores are nearly the same.

    Totals are compared, because rounding may flip a hard decision.
    """
    tokens, lengths = batch(model.task)
    before = log_prob(model, tokens, lengths)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            after = log_prob(model, tokens, lengths)
            if not model.closed_form:
                # Dropout draws: the caller's generator must not move.
                with torch.random.fork_rng(devices=[]):
                    loss = training_loss(model.train(), tokens, lengths)
                    loss.backward()
                model.zero_grad()
            if model.score is not Score.OBJECTIVE:
                dense = next_log_prob(model, tokens[:, :2])
                assert dense.isfinite().all(), "next_log_prob is not finite"
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise AssertionError(f"does not run under autocast: {error}") from error
    assert after.dtype == torch.float32, f"scores are {after.dtype}"
    # Of all tokens: a single score may change by much when a decision flips.
    expected = before.sum()
    total = after.sum()
    gap = (total - expected).abs()
    assert gap <= HALF * expected.abs(), f"totals: {expected:.4g} in float32, {total:.4g}"


@contextlib.contextmanager
def _scaled(model: LanguageModel, factor: float) -> Iterator[None]:
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        # Buffers stay: they are counts and masks.
        for weight in model.parameters():
            weight.mul_(factor)
    try:
        yield
    finally:
        model.load_state_dict(before)
