"""Which runs may share a pack, and which models can be packed.

Runs may share a pack if they differ only in numbers: seed, weights, order of the data, learning
rate and its schedule, weight decay, clip, initialisation, epoch. A cut path of a cell is a number
too if the cut equals a weight of zero: `uncut_config` returns the config without such cuts.

On a GPU the members of a pack follow from the memory that one needs, estimated on the CPU:

    bytes = 16 N + Σ bytes of the tensors that autograd saves for the backward pass of one batch

N is the number of parameters, in four float32 copies: weights, gradients and two moments of Adam.
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

from lmzoo.base.config import to_dict
from lmzoo.cells.base import CELLS, Cell
from lmzoo.contract import START, LanguageModel, Task
from lmzoo.functional.parameters import initialise
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.kernels.guest import forked_generators
from lmzoo.train.recipe import DecayOn, Recipe

MEMBER_FIELDS = (
    "lr",
    "clip",
    "weight_decay",
    "init",
    "warmup",
    "schedule",
    "schedule_epochs",
    "final_lr",
    "cooldown",
)
"""Fields of a recipe in which pack members may differ."""

MAX_TABLE = 2**18
"""Largest embedding table (V, E) of a member for which packing is faster (`benchmarks/fuse.py`)."""
COPIES = 4
"""Weights, gradients and two moments."""


def uncut_config(config: Any) -> Any:
    """Return the config without the cuts that equal a weight of zero.

    The config of a part defines these cuts by a method `uncut`.
    """
    # Inner configs have cuts, too: those of a cell, or of each model of an ensemble.
    changed = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        part = value
        if dataclasses.is_dataclass(value):
            part = uncut_config(value)
        elif isinstance(value, tuple) and all(map(dataclasses.is_dataclass, value)):
            part = tuple(map(uncut_config, value))
        if part != value:
            changed[field.name] = part
    if changed:
        config = dataclasses.replace(config, **changed)
    if hasattr(config, "uncut"):
        return config.uncut()
    return config


def template_model(model: LanguageModel) -> LanguageModel:
    """Return a model with every parameter that a pack member can have; its values are not used."""
    with forked_generators():
        template = type(model)(uncut_config(model.config), model.task)
        template.output_scale = model.output_scale
        return template


@functools.lru_cache(maxsize=1024)
def pack_key(model: Any, recipe: Recipe) -> str:
    """Return a key of a model config and a recipe; runs with equal keys may share a pack.

    Cached, because every epoch of a pack computes the keys of all members, 0.1 ms each.
    """
    # Members differ in numbers that are vectors of the pack; all other settings must be equal.
    structure = to_dict(recipe)
    for field in MEMBER_FIELDS:
        structure.pop(field, None)
    structure.setdefault("weight_decay_on", DecayOn.MATRICES)  # members may have no decay
    uncut = uncut_config(model)
    kind = f"{type(uncut).__module__}.{type(uncut).__qualname__}"
    return json.dumps([kind, to_dict(uncut), structure], sort_keys=True)


def packing_pays(model: Any, recipe: Recipe, task: Task) -> bool:
    """Whether runs of this size are faster in a pack; a fixed rule, equal on every machine."""
    width = getattr(model, "width", 1)
    activations = recipe.batch * task.length * width
    limit = Cell.pack_limit
    own = type(getattr(model, "cell", None))
    for name in CELLS:
        if CELLS[name].Config is own:
            limit = CELLS[name].pack_limit
    if activations > limit:
        return False
    return task.vocab * width <= MAX_TABLE


def reason_not_packable(model: LanguageModel) -> str:
    """Return why this model cannot be packed, or '' if it can.

    The function tries it: a pack of two members scores a tiny batch, without kernels, which give
    the same and take a second to load.
    """
    if model.closed_form:
        return "it is fitted in closed form, so there are no steps to share"
    # A pack has one matrix of gradients: every number of it is trained.
    if any(not parameter.requires_grad for parameter in model.parameters()):
        return "some of its parameters are frozen"
    with forked_generators() as set_seed, without_kernels():
        template = template_model(model)
        initialise(template, 0)
        length = min(model.task.length, 4)
        batch = example_batch(model.task, 2, length, conditional=template.conditional)
        set_seed(0)
        before = torch.get_rng_state()
        template.train().objective(*batch)
        if not before.equal(torch.get_rng_state()):
            return "its training draws noise, which must differ between pack members"
        return _vmap_failure(template, batch)


def _vmap_failure(template: LanguageModel, batch: tuple[Tensor, ...]) -> str:
    """Return why `vmap` cannot run the model, or ''."""
    before = {name: value.clone() for name, value in template.named_buffers()}
    # Expanded, not copied: whether `vmap` can run it does not depend on the values.
    parameters = {
        name: _twice(parameter.detach()) for name, parameter in template.named_parameters()
    }
    stacked = [_twice(column) for column in batch]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a missing batching rule would loop over members
            vmap(make_functional(template))(parameters, *stacked)
    except (RuntimeError, ValueError, NotImplementedError, UserWarning) as error:
        message = str(error).strip().splitlines()[0]
        return f"torch.func.vmap cannot run it: {message}"
    for name, value in template.named_buffers():
        if not before[name].equal(value):
            return "it keeps running statistics"
    return ""


def _twice(tensor: Tensor) -> Tensor:
    return tensor.expand((2,) + tensor.shape)


def make_functional(template: LanguageModel, method: str = "objective") -> Any:
    """Return a function (parameters by name, *batch) that calls a method of the template.

    Faster than `torch.func.functional_call`, which searches all submodules at every call; here the
    owner of each parameter is found once.
    """
    slots = []
    names = {parameter: name for name, parameter in template.named_parameters()}
    for module in template.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                slots.append((module._parameters, key, parameter))

    def call(parameters: Mapping[str, Tensor], *batch: Tensor) -> Tensor:
        for owner, key, original in slots:
            owner[key] = cast("Parameter", parameters[names[original]])
        try:
            return getattr(template, method)(*batch)
        # Also after an error: the template keeps its own parameters.
        finally:
            for owner, key, original in slots:
                owner[key] = original

    return call


def example_batch(task: Task, size: int, length: int, *, conditional: bool) -> tuple[Tensor, ...]:
    """Return a batch of `size` sequences, the last one shorter, with sources if conditional."""
    # Tokens that are not special, after `<start>`.
    tokens = torch.full((size, length), min(START, task.vocab - 1))
    tokens[:, 1:] = task.vocab - 1
    lengths = torch.full((size,), length)
    # One row is shorter, so that the code for padding runs, too.
    lengths[-1] = min(length, 2)
    if not conditional:
        return tokens, lengths
    width = max(1, task.source_length)
    source = torch.full((size, width), task.source_vocab - 1)
    return tokens, lengths, source, torch.full((size,), width)


def member_bytes(model: LanguageModel, batch: int) -> int:
    """Return the estimated bytes of one pack member with batches of `batch` sequences.

    The estimate scores one batch of full length. It counts what autograd saves, once per storage;
    temporary results of single operations are not counted.
    """
    saved = {}

    # Saved tensors may be views of one storage: counted once.
    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    template = template_model(model).train()
    columns = example_batch(model.task, batch, model.task.length, conditional=model.conditional)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        objective = template.objective(*columns)
    del objective  # only here: freed storage could give its address to another tensor
    parameters = sum(p.nbytes for p in template.parameters())
    return COPIES * parameters + sum(saved.values())
