"""Laws of models with an objective of their own: training raises it."""

import torch

from lmzoo.contract import START, UNKNOWN, LanguageModel
from lmzoo.laws.tiny import batch, new_model, seeded, training_loss


def law_training_raises_the_objective(model: LanguageModel):
    """Sixty steps lower the training loss of one batch by 10 %, averaged over fixed noise."""
    steps = 60
    share = 0.9
    draws = 8
    model = new_model(model, seed=0).train()
    tokens, lengths = batch(model.task, count=8)
    if model.task.vocab > UNKNOWN:
        tokens[:, 1:] = UNKNOWN
    else:
        tokens[:, 1:] = START

    def mean_loss() -> float:
        losses = []
        with seeded(1), torch.no_grad():
            for _ in range(draws):
                loss = training_loss(model, tokens, lengths)
                losses.append(loss.item())
        return sum(losses) / draws

    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    # The noise of the objective is the same before and after, so that a few draws suffice.
    first = mean_loss()
    with seeded(0):
        for _ in range(steps):
            optimiser.zero_grad()
            training_loss(model, tokens, lengths).backward()
            optimiser.step()
    last = mean_loss()
    assert last <= share * first, f"{steps} steps take the loss from {first:.3f} to {last:.3f}"


def law_objective_is_zero_where_unscored(model: LanguageModel):
    """The objective is (B, T), finite, 0 at unscored positions, and independent of padding."""
    tokens, lengths = batch(model.task)
    t = torch.arange(model.task.length)
    is_pad = t >= lengths[:, None]
    scored = (t >= 1) & ~is_pad
    for training in (False, True):
        model.train(training)
        objectives = []
        for filler in (0, model.task.vocab - 1):
            filled = tokens.masked_fill(is_pad, filler)
            with seeded(0), torch.no_grad():
                objectives.append(model.objective(filled, lengths))
        first, second = objectives
        assert first.shape == tokens.shape, f"objective: {first.shape}"
        assert first.isfinite().all(), "the objective is not finite"
        assert (first[~scored] == 0).all(), "an unscored position has an objective"
        if not training:
            assert first.equal(second), "the objective depends on the padding"
