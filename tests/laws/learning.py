"""Gradients reach every parameter, and following them lowers the loss."""

import copy
import dataclasses
import itertools
import math

import torch

from lmzoo.contract import START, UNKNOWN, LanguageModel
from tests.laws.ask import cost, fresh, loss
from tests.tiny import FINE, batch


def law_every_parameter_learns(model: LanguageModel) -> None:
    """Each parameter gets a finite gradient above rounding; float64 tells the two apart."""
    if model.closed_form:
        return
    model = copy.deepcopy(model).double().train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        cost(model, *batch(model.task, count=16)).backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, f"{name} gets no gradient"
            assert parameter.grad.isfinite().all(), f"{name}: gradient is not finite"
            assert parameter.grad.abs().max() > FINE, f"{name} gets a gradient of zero"


def law_overfits_one_sequence(model: LanguageModel) -> None:
    """Nine tenths of the way down to the entropy of the sequence's token frequencies.

    Further down only context helps, which not every model of the zoo may look at. Two
    ordinary words take turns: a model may hold that nothing follows an end token.
    """
    steps, share = 20, 0.9
    task = dataclasses.replace(model.task, vocab=UNKNOWN + 3)
    model = fresh(model, seed=0, task=task).train()
    words = itertools.cycle((task.vocab - 1, task.vocab - 2))
    tokens = torch.tensor([[START, *itertools.islice(words, task.length - 1)]])
    lengths = torch.tensor([task.length])
    p = (task.length // 2) / (task.length - 1)
    floor = -p * math.log(p) - (1 - p) * math.log(1 - p)
    if model.closed_form:
        model.fit_closed_form(tokens, lengths)
        last = loss(model, tokens, lengths).item()
        assert last < math.log(task.vocab), f"fitted, its loss is {last:.3f}, no better than chance"
        return
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = loss(model, tokens, lengths).item()
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model, tokens, lengths).backward()
            optimizer.step()
        last = loss(model.eval(), tokens, lengths).item()
    assert last - floor <= (1 - share) * max(first - floor, floor), (
        f"{steps} steps take the loss from {first:.3f} to {last:.3f}, floor {floor:.3f}"
    )
