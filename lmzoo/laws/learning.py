"""Gradients reach every parameter, and following them lowers the loss."""

import copy
import dataclasses
import itertools
import math

import torch

from lmzoo.contract import START, UNKNOWN, LanguageModel
from lmzoo.laws.probes import disturbed
from lmzoo.laws.support import loss, new_model, training_loss
from lmzoo.laws.tiny import FINE, batch


def law_every_parameter_learns(model: LanguageModel) -> None:
    """Each parameter gets a finite gradient that is not zero, at the start or near it.

    A weight that starts at zero lets no gradient pass to what it multiplies. In float64, a gradient
    that is zero up to rounding is below `FINE`.
    """
    if model.closed_form:
        return
    unmoved = set(dict(model.named_parameters()))
    for near in (copy.deepcopy(model).double(), disturbed(model)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            training_loss(near.train(), *batch(model.task, count=16)).backward()
        for name, parameter in near.named_parameters():
            if not parameter.requires_grad:
                unmoved.discard(name)
                continue
            assert parameter.grad is not None, f"{name} gets no gradient"
            assert parameter.grad.isfinite().all(), f"{name}: gradient is not finite"
            if parameter.grad.abs().max() > FINE:
                unmoved.discard(name)
        if not unmoved:
            return
    raise AssertionError(f"{', '.join(sorted(unmoved))}: a gradient of zero")


def law_overfits_one_sequence(model: LanguageModel) -> None:
    """Training covers 90 % of the distance to the entropy of the sequence's token frequencies.

    Only context can lower the loss further, and not every model of the zoo reads context. Two
    ordinary tokens alternate, because a model may know that nothing follows an end token.
    """
    steps, share = 20, 0.9
    task = dataclasses.replace(model.task, vocab=UNKNOWN + 3)
    model = new_model(model, seed=0, task=task).train()
    alternating = itertools.cycle((task.vocab - 1, task.vocab - 2))
    tokens = torch.tensor([[START, *itertools.islice(alternating, task.length - 1)]])
    lengths = torch.tensor([task.length])
    p = (task.length // 2) / (task.length - 1)
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    if model.closed_form:
        model.fit_closed_form(tokens, lengths)
        last = loss(model, tokens, lengths).item()
        assert last < math.log(task.vocab), f"the fitted loss {last:.3f} is no better than chance"
        return
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = loss(model, tokens, lengths).item()
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            step_loss = loss(model, tokens, lengths)
            step_loss.backward()
            optimizer.step()
            losses.append(step_loss.item())
        # At this rate the loss may jump once after it has reached 0: the best of five steps counts.
        last = min(loss(model.eval(), tokens, lengths).item(), *losses[-4:])
    assert last - entropy <= (1 - share) * max(first - entropy, entropy), (
        f"{steps} steps take the loss from {first:.3f} to {last:.3f}, entropy {entropy:.3f}"
    )
