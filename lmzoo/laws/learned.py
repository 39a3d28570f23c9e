"""What learns at a point of a study, with its own options."""

import functools
import hashlib
import json
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from lmzoo import zoo
from lmzoo.contract import MODELS, Task
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.laws.probes import disturbed
from lmzoo.laws.tiny import TASK, batch, seeded, training_loss


class Learned(NamedTuple):
    """What the gradients of a model say."""

    dead: frozenset[str]
    """Parameters that are trained and get no gradient."""
    function: str
    """A hash of all gradients: equal for models that compute the same."""


def learned(config: Any, task: Task, length: int = 9) -> Learned:
    """Return what learns of a model with noise on its weights; longer sequences take longer."""
    used = replace(
        task,
        vocab=TASK.vocab,
        source_vocab=TASK.source_vocab,
        length=min(task.length, length),
    )
    text = json.dumps(MODELS.dump(config), sort_keys=True)
    return _learned(text, used)


@functools.cache
def _learned(config: str, task: Task) -> Learned:
    parsed = MODELS.parse(json.loads(config))
    built = zoo.build(parsed, task, seed=0)
    model = disturbed(built).train()
    if model.closed_form:
        return Learned(frozenset(), config)
    tokens, lengths = batch(task, count=16)
    with without_kernels(), seeded(0):
        training_loss(model, tokens, lengths).backward()
    digest = hashlib.sha256()
    dead = set()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        digest.update(gradient.detach().numpy().tobytes())
        if parameter.requires_grad and not gradient.any():
            dead.add(name)
    return Learned(frozenset(dead), digest.hexdigest())
