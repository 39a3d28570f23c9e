"""The memory that one pack member needs on a GPU, estimated on the CPU.

    bytes = 16 N + Σ bytes of the tensors that autograd saves for the backward pass of one batch

N is the number of parameters, in four float32 copies: weights, gradients and two moments of Adam.
"""

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.train.pack_compatibility import example_batch, template_model

COPIES = 4
"""Weights, gradients and two moments."""


def member_bytes(model: LanguageModel, batch: int) -> int:
    """Return the estimated bytes of one pack member with batches of `batch` sequences.

    The estimate scores one batch of full length. It counts what autograd saves, once per storage;
    temporary results of single operations are not counted.
    """
    saved: dict[int, int] = {}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    template = template_model(model).train()
    columns = example_batch(model.task, batch, model.task.length, conditional=model.conditional)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        objective = template.objective(*columns)
    del objective  # only here: freed storage could give its address to another tensor
    return COPIES * sum(p.nbytes for p in template.parameters()) + sum(saved.values())
