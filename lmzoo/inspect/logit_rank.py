r"""The rank of the matrix of logits: how many independent directions predictions move in.

    A[c, v] = log P(v | context c) − mean_v log P(v | c)        N contexts, V tokens
    rank       number of singular values σ_i > σ_1 max(N, V) ε
    effective  exp( − Σ p_i log p_i ),  p_i = σ_i / Σ σ_i
    energy     smallest k with Σ_{i<=k} σ_i² >= 0.99 Σ σ_i²

Subtracting the mean removes the normaliser, which depends on the context only. A softmax of E
features, logits Emb y, has rank at most E whatever computes y, an RNN or an LSTM: the softmax
bottleneck. Mixtures of softmaxes and emissions that are no inner product have no such bound.
Everything is computed in float64, with ε its precision.

Yang et al. 2018 (arXiv:1711.03953); Roy & Vetterli 2007 (effective rank). Source: S1.
"""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.types import Lengths, Tokens

ENERGY = 0.99
"""Share of the squared singular values."""


@dataclass(frozen=True)
class LogitRank:
    """The rank of a matrix of logits, and its bounds."""

    contexts: int
    vocab: int
    rank: int
    effective: float
    energy: int
    """Directions that hold 99 % of the squared singular values."""


@torch.no_grad()
def centred_logits(
    model: LanguageModel, tokens: Tokens, lengths: Lengths
) -> Float[Tensor, "contexts V"]:
    """Return A for every prefix of these sequences, in float64; equal prefixes occur once.

    Raises:
        UserError: The model is no density from left to right, or gives a token the probability 0.
    """
    if not model.generates or model.conditional:
        raise UserError(f"{model.name} does not predict the next token from a prefix alone")
    model = copy.deepcopy(model).double().eval()
    state, rows = model.begin(len(tokens)), list[Tensor]()
    for t in range(tokens.shape[1] - 1):
        scores, state = model.advance(state, tokens[:, t])
        prefixes = tokens[:, : t + 1].tolist()
        first = {tuple(prefix): i for i, prefix in reversed(list(enumerate(prefixes)))}
        kept = [i for i in sorted(first.values()) if t + 1 < lengths[i]]
        rows.append(scores[kept])
    matrix = torch.cat(rows)
    if not matrix.isfinite().all():
        raise UserError(f"{model.name} gives some tokens the probability 0, so logits are infinite")
    return matrix - matrix.mean(dim=1, keepdim=True)


def logit_rank(model: LanguageModel, tokens: Tokens, lengths: Lengths) -> LogitRank:
    """Return the rank of the logits after every prefix of these sequences; see `centred_logits`."""
    matrix = centred_logits(model, tokens, lengths)
    values = torch.linalg.svdvals(matrix)
    tolerance = values[0] * max(matrix.shape) * torch.finfo(matrix.dtype).eps
    share = values / values.sum()
    squares = values.square().cumsum(0) / values.square().sum()
    return LogitRank(
        contexts=len(matrix),
        vocab=matrix.shape[1],
        rank=int((values > tolerance).sum()),
        effective=torch.special.entr(share).sum().exp().item(),
        energy=int((squares < ENERGY).sum()) + 1,
    )
