"""A model says truly how much it carries between steps and which parameters it does not use."""

import itertools
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lmzoo.contract import DecodingState, LanguageModel
from lmzoo.laws.support import new_model
from lmzoo.laws.tiny import every_sequence, sources

WINDOW = 6
"""Length of the sequences: one more than the window of a cell's convolution."""
DRAWS = 6
"""Number of initial weights; a ReLU that is off for all sequences under one is on under another."""


def law_state_has_the_declared_size(model: LanguageModel) -> None:
    """`state_size` numbers are in the state of a sequence after every step that fills a window.

    None says that the state grows with every token.
    """
    tokens, _ = every_sequence(model.task)
    source = sources(model.task, len(tokens)) if model.conditional else ()
    model.eval()
    state, sizes = model.begin(len(tokens), *source), []
    with torch.no_grad():
        for token in tokens[:, :-1].unbind(1):
            _, state = model.advance(state, token)
            sizes.append(_numbers(state))
    declared, window = model.state_size, model.context_length
    found = f"state_size is {declared}; after each token the state has {sizes} numbers"
    if declared is None:
        assert all(before < after for before, after in itertools.pairwise(sizes)), found
    else:
        first = 1 if window is None else min(window, len(sizes))
        assert all(size <= declared for size in sizes), found
        assert set(sizes[max(0, first - 1) :]) == {declared}, found


def law_unused_parameters_are_declared(model: LanguageModel) -> None:
    """`unused_parameters` entries of the parameters have no gradient, whatever the sequence."""
    if model.closed_form:
        return
    model = new_model(model, 0, replace(model.task, length=WINDOW))
    tokens, lengths = every_sequence(model.task)
    inputs = tokens, lengths, *(sources(model.task, len(tokens)) if model.conditional else ())
    used: dict[str, Tensor] = {}
    for seed in range(DRAWS):
        drawn = new_model(model, seed).double().train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with torch.no_grad():
                for weight in drawn.parameters():
                    weight.add_(0.3 * torch.randn_like(weight))  # zeros hide other parameters
            drawn.objective(*inputs).sum().backward()
        for name, weight in drawn.named_parameters():
            moved = torch.zeros_like(weight) if weight.grad is None else weight.grad
            used[name] = used.get(name, moved != 0) | (moved != 0)
    found = {name: int((~part).sum()) for name, part in used.items() if not part.all()}
    count = sum(found.values())
    declared = model.unused_parameters
    assert count == declared, f"unused_parameters is {declared}, but {count} are unused: {found}"


def _numbers(state: DecodingState) -> int:
    return sum(part[0].numel() for part in tree_leaves(state) if isinstance(part, Tensor))
