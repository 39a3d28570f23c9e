"""The matrix products that a model needs for a token.

    flops = floating point operations of all matrix products of `log_prob` / scored tokens

Elementwise operations do not count, nor does the backward pass, which needs about twice as many
products. Kernels, whose operations torch does not see, are off. A batch shares products: a cell
with a scan over all positions (minGRU, GLA, ...) projects each word once, not at each token.
"""

from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from lmzoo.contract import UNKNOWN, LanguageModel, Task
from lmzoo.kernels.dispatch import without_kernels

TOKENS = 800
"""Tokens of the counted batch, about. A batch shares products such as the logits of a mixture."""
LONG = 20
"""Longest sequences of a model with a finite state, all of whose tokens cost the same."""


@torch.no_grad()
def matrix_flops(model: LanguageModel, task: Task) -> int:
    """Return the floating point operations of the matrix products for one scored token.

    They are counted in a batch of about `TOKENS` tokens, all words of which occur in turn. Its
    sequences have the length of the task if the state of the model grows.
    """
    length = task.length
    if model.state_size is not None:
        length = min(length, LONG)
    columns = _batch(length, task.vocab)
    batch = len(columns[0])
    if task.source_length and task.source_vocab:
        columns += _batch(task.source_length, task.source_vocab, batch)
    with without_kernels(), _FlopCounter() as counter:
        model.eval().log_prob(*columns)
    return round(counter.flops / (batch * (length - 1)))


def _batch(length: int, vocab: int, batch: int | None = None) -> list[torch.Tensor]:
    if batch is None:
        batch = -(-TOKENS // length)  # rounded up
    # All words but the first ids, which have meanings of their own (`<start>`, `<end>`).
    words = max(vocab - UNKNOWN - 1, 1)
    tokens = torch.arange(batch * length) % words
    tokens = tokens + min(UNKNOWN + 1, vocab - 1)
    return [tokens.view(batch, length), torch.full((batch,), length)]


class _FlopCounter(TorchDispatchMode):
    """Adds up the operations of matrix products. torch's own counter adds hooks to all threads."""

    flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see `lmzoo/train/pack_recorder.py`

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        result = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula:
            self.flops += formula(*args, **kwargs, out_val=result)
        return result
