"""What a model with an objective of its own owes: following it leads upwards."""

import torch

from lmzoo.contract import START, UNKNOWN, LanguageModel
from tests.laws.ask import cost, fresh
from tests.tiny import batch


def law_training_raises_the_objective(model: LanguageModel) -> None:
    """Sixty steps take a tenth off its cost on one batch, over the same draws of its noise."""
    steps, share, draws = 60, 0.9, 8
    model = fresh(model, seed=0).train()
    tokens, lengths = batch(model.task, count=8)
    tokens[:, 1:] = UNKNOWN if model.task.vocab > UNKNOWN else START

    def mean() -> float:
        with torch.no_grad():
            torch.manual_seed(1)
            return sum(cost(model, tokens, lengths).item() for _ in range(draws)) / draws

    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    with torch.random.fork_rng(devices=[]):
        first = mean()
        torch.manual_seed(0)
        for _ in range(steps):
            optimiser.zero_grad()
            cost(model, tokens, lengths).backward()
            optimiser.step()
        last = mean()
    assert last <= share * first, f"{steps} steps take the cost from {first:.3f} to {last:.3f}"


def law_objective_is_of_the_scored(model: LanguageModel) -> None:
    """(B, T), finite, exactly 0 where nothing is scored; other padding changes nothing."""
    tokens, lengths = batch(model.task)
    t = torch.arange(model.task.length)
    scored = (t >= 1) & (t < lengths[:, None])
    for training in (False, True):
        found = []
        for filler in (0, model.task.vocab - 1):
            filled = tokens.masked_fill(t >= lengths[:, None], filler)
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(0)
                found.append(model.train(training).objective(filled, lengths))
        assert found[0].shape == tokens.shape, f"objective: {found[0].shape}"
        assert found[0].isfinite().all(), "the objective is not finite"
        assert (found[0][~scored] == 0).all(), "an unscored position has an objective"
        if not training:
            assert found[0].equal(found[1]), "the objective depends on the padding"
