r"""Both metrics of a model on a set of sequences.

    NLL_b = −Σ_t log P(s_t | s_<t)         n_b = scored tokens of sequence b
    token     Σ_b NLL_b / Σ_b n_b          every token alike: the default
    sentence  mean_b( NLL_b / n_b )        every sequence alike: what S0's tables report

They coincide when all n_b are equal. zoo.md 1.3.
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
    """How many tokens were scored."""
    nll: Float[Tensor, "N"]
    """NLL of each sequence, in the order they were given (nats)."""

    @property
    def perplexity(self) -> float:
        """exp of the token loss."""
        return math.exp(min(self.token, 700.0))


@torch.no_grad()
def evaluate(model: LanguageModel, part: Sequences, *, batch: int = 500) -> Losses:
    """Score every sequence; sums are taken in double precision."""
    was_training = model.training
    model.eval()
    nll = torch.empty(len(part), dtype=torch.float64)
    part = part.to(device_of(model))
    order = part.lengths.argsort(stable=True)
    for rows in order.split(batch):
        some = gather_batch(part, rows, trim=not model.leaks)
        with device_scope(model):
            scores = model.log_prob(some.tokens, some.lengths, *some.given)
        nll[rows.cpu()] = -scores.double().sum(1).cpu()
    model.train(was_training)
    return losses(nll, part.lengths)


def losses(nll: Float[Tensor, "N"], lengths: Int[Tensor, "N"]) -> Losses:
    """Both metrics, of the sequences' NLLs (float64) and lengths."""
    n = (lengths - 1).cpu().double()
    return Losses(
        token=float(nll.sum() / n.sum()),
        sentence=float((nll / n).mean()),
        tokens=int(n.sum()),
        nll=nll,
    )
