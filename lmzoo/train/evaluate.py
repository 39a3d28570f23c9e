r"""Evaluation: the token loss and the sentence loss of a model on a set of sequences.

    NLL_b = −Σ_t log P(s_t | s_<t)         n_b = scored tokens of sequence b
    token     Σ_b NLL_b / Σ_b n_b          equal weight per token: the default
    sentence  mean_b( NLL_b / n_b )        equal weight per sequence: the metric of S0's tables

Both are equal when all n_b are equal.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.data.batches import gather_batch
from lmzoo.data.corpus import Sequences
from lmzoo.device import device_of, device_scope


@dataclass(frozen=True)
class Losses:
    """Losses in nats per scored token."""

    token: float
    sentence: float
    tokens: int
    """Number of scored tokens."""
    nll: Float[Tensor, "N"]
    """NLL of each sequence in nats, in the order of the data."""

    @property
    def perplexity(self) -> float:
        """Exponential of the token loss."""
        return math.exp(min(self.token, 700.0))


@torch.no_grad()
def evaluate(model: LanguageModel, part: Sequences, *, batch: int = 500) -> Losses:
    """Return the losses on all sequences; sums are taken in double precision."""
    was_training = model.training
    model.eval()
    nll = torch.empty(len(part), dtype=torch.float64)
    part = part.to(device_of(model))
    order = part.lengths.argsort(stable=True)
    for rows in order.split(batch):
        sequences = gather_batch(part, rows, trim=not model.leaks)
        with device_scope(model):
            scores = model.log_prob(sequences.tokens, sequences.lengths, *sequences.sources)
        nll[rows.cpu()] = -scores.double().sum(1).cpu()
    model.train(was_training)
    return compute_losses(nll, part.lengths)


def compute_losses(nll: Float[Tensor, "N"], lengths: Int[Tensor, "N"]) -> Losses:
    """Return both losses from the NLL (float64) and the length of each sequence."""
    n = (lengths - 1).cpu().double()
    return Losses(
        token=float(nll.sum() / n.sum()),
        sentence=float((nll / n).mean()),
        tokens=int(n.sum()),
        nll=nll,
    )
