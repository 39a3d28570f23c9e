"""Which members fit together, and which models may be fused at all.

Members fit when they differ in nothing but numbers: seed, weights, order of the data,
learning rate, weight decay, clip, warm-up, position. A path cut from a cell is a number
too, where it equals a weight of zero: `whole` is the config in which it is not cut.
"""

import dataclasses
import functools
import json
import warnings
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import Parameter

from lmzoo.config import to_dict
from lmzoo.contract import START, LanguageModel, Task, initialise
from lmzoo.train.recipe import Recipe

NUMBERS = ("lr", "clip", "weight_decay", "warmup", "init")
"""Fields of a recipe in which members may differ."""


def whole(config: Any) -> Any:
    """The config with no path cut that may as well be a weight of zero.

    A part's config may say what that is by a method `whole`.
    """
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    parts = {k: whole(v) for k, v in fields.items() if dataclasses.is_dataclass(v)}
    if any(parts[k] != fields[k] for k in parts):
        config = dataclasses.replace(config, **parts)
    return config.whole() if hasattr(config, "whole") else config


def host_of(model: LanguageModel) -> LanguageModel:
    """A model with every parameter any member of its shape has; its values mean nothing."""
    with torch.random.fork_rng(devices=[]):
        return type(model)(whole(model.config), model.task)


@functools.lru_cache(maxsize=1024)
def shape(model: Any, recipe: Recipe) -> str:
    """What members must have in common, of a model's config and a recipe; equal texts fit.

    Kept, as a pack asks for all of its members' at every epoch: 0.1 ms each.
    """
    structure = {k: v for k, v in to_dict(recipe).items() if k not in NUMBERS}
    uncut = whole(model)
    kind = f"{type(uncut).__module__}.{type(uncut).__qualname__}"
    return json.dumps([kind, to_dict(uncut), structure], sort_keys=True)


MOST = 2**20
"""Numbers of one (B, T, E) tensor of a member up to which fusing pays (`benchmarks/fuse.py`).

Beyond it a member's own arithmetic fills the processor, and P of them only spill its cache.
"""
TABLE = 2**18
"""The same of a table of embeddings (V, E): what is made of it fills the cache by itself."""


def packing_pays(model: Any, recipe: Recipe, task: Task) -> bool:
    """Whether members of this size are faster together; a rule, so that it is the same anywhere."""
    width = getattr(model, "width", 1)
    return recipe.batch * task.length * width <= MOST and task.vocab * width <= TABLE


def reason_not_packable(model: LanguageModel) -> str:
    """'' if members of this model may be fused; if not, the reason.

    Found by trying: a tiny batch is scored by two members as one program.
    """
    if model.closed_form:
        return "it is fitted in closed form, so there are no steps to share"
    if not all(parameter.requires_grad for parameter in model.parameters()):
        return "some of its parameters are frozen"
    with torch.random.fork_rng(devices=[]):
        host = host_of(model)
        initialise(host, 0)
        batch = _batch(model.task, host.conditional)
        torch.manual_seed(0)
        before = torch.get_rng_state()
        host.train().objective(*batch)
        if not before.equal(torch.get_rng_state()):
            return "it draws noise while it trains, and each member's noise is its own"
        return _mapped(host, batch)


def _mapped(host: LanguageModel, batch: tuple[Tensor, ...]) -> str:
    """Why vmap cannot run the model, or ''."""
    buffers = {name: value.clone() for name, value in host.named_buffers()}
    parameters = {name: p.detach().expand(2, *p.shape) for name, p in host.named_parameters()}
    twice = [column.expand(2, *column.shape) for column in batch]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a missing batching rule is a loop over members
            vmap(as_function(host))(parameters, *twice)
    except (RuntimeError, ValueError, NotImplementedError, UserWarning) as error:
        said = str(error).strip().splitlines()[0]
        return f"torch.func.vmap cannot run it: {said}"
    if any(not buffers[name].equal(value) for name, value in host.named_buffers()):
        return "it keeps running statistics"
    return ""


def as_function(host: LanguageModel, method: str = "objective") -> Any:
    """(parameters by name, tokens, lengths, *given) -> the host's `method` under them.

    What `torch.func.functional_call` does for any module; but that looks through all of the module
    at every call, and here it is looked up once where each parameter belongs.
    """
    names = {parameter: name for name, parameter in host.named_parameters()}
    places = [
        (module._parameters, key, parameter)
        for module in host.modules()
        for key, parameter in module._parameters.items()
        if parameter is not None
    ]

    def call(parameters: Mapping[str, Tensor], *batch: Tensor) -> Tensor:
        for held, key, own in places:
            held[key] = cast("Parameter", parameters[names[own]])
        try:
            return getattr(host, method)(*batch)
        finally:
            for held, key, own in places:
                held[key] = own

    return call


def _batch(task: Task, conditional: bool) -> tuple[Tensor, ...]:  # noqa: FBT001
    """Two sequences, the second shorter, and sources where the model needs some."""
    length = min(task.length, 4)
    tokens = torch.full((2, length), min(START, task.vocab - 1))
    tokens[:, 1:] = task.vocab - 1
    columns = (tokens, torch.tensor([length, 2]))
    if conditional:
        source = torch.full((2, max(1, task.source_length)), task.source_vocab - 1)
        columns = (*columns, source, torch.full((2,), source.shape[1]))
    return columns
