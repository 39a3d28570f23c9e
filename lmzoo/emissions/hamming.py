r"""Hamming emission: a word is a code of M small vectors, and mismatches are counted.

    q = A y + a                  M vectors of size d from the context
    C_v = K e(v)                 M vectors of size d from the word's embedding
    a_vm = q_m · C_vm [+ b_m]
    P(v | y) = softmax_v( β Σ_m σ(a_vm) )        aggregate=sigmoid_l1
             | softmax_v( β min_m a_vm )         aggregate=min
             | softmax_v( β Σ_m a_vm )           aggregate=sum
             | softmax_v( −β Σ_m |σ(q_m) − σ(C_vm)| )   aggregate=code_l1, d = 1

M − Σ_m σ(a_vm) is a soft count of the groups in which word and context disagree: one
disagreement costs at most β and no agreement elsewhere can buy it back, as it can in an
inner product (`sum`, whose logits have rank at most min(E, M d)). Every word is compared at
every position: (B, T, V, M) numbers. `code_l1` is a distance: codes of zeros and ones have their
Hamming distance, and no context tells two words further apart than their codes are.

A departure: S1 gives each word a free code, V M d numbers. Here codes are read off the tied
embeddings and lie in a space of E dimensions; beyond M d = E, more groups are more readings
of the same E numbers.

S1; zoo.md 4.1.
"""

import math
from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool, model_validator
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange
from lmzoo.types import Embeddings


class Aggregate(StrEnum):
    """What becomes of a word's M agreements."""

    SIGMOID_L1 = "sigmoid_l1"  # counted, each at most once
    MIN = "min"  # the worst one decides
    SUM = "sum"  # added up: a tied softmax
    CODE_L1 = "code_l1"  # the distance of squashed codes, one number to a group


@EMISSIONS("hamming")
class HammingEmission(Emission):
    """Words and contexts are codes; a word is likely where few groups mismatch."""

    @config
    class Config:
        """How many groups, how large, and how they are put together."""

        groups: Annotated[int, IntRange(4, 64, log=True)] = Field(16, ge=1)
        """M."""
        size: Annotated[int, IntRange(1, 8)] = Field(2, ge=1)
        """d."""
        aggregate: Aggregate = Aggregate.SIGMOID_L1
        biased: StrictBool = False
        """Whether each group has a threshold b_m."""

        @model_validator(mode="after")
        def _bias_matters(self) -> Any:
            if self.biased and self.aggregate is Aggregate.SUM:
                raise UserError("biased=True: aggregate=sum adds the same to every word; drop it")
            if self.aggregate is Aggregate.CODE_L1:
                self._one_number()
            return self

        def _one_number(self) -> None:
            if self.size != 1:
                raise UserError(
                    f"size={self.size}: aggregate=code_l1 compares single numbers; set size=1"
                )
            if self.biased:
                raise UserError(
                    "biased=True: aggregate=code_l1 has no agreement that a threshold could "
                    "stand at; drop it"
                )

    bias: nn.Parameter | None

    def __init__(self, config: Config, width: int, norm: Norm) -> None:
        super().__init__(config, width, norm)
        self.context = nn.Linear(width, config.groups * config.size)
        self.codes = nn.Linear(width, config.groups * config.size, bias=False)
        bias = nn.Parameter(torch.empty(config.groups)) if config.biased else None
        self.register_parameter("bias", bias)
        self.log_scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """β starts where the logits are about Σ_m a_vm: σ has slope ¼ at 0."""
        l1 = self.config.aggregate in (Aggregate.SIGMOID_L1, Aggregate.CODE_L1)
        nn.init.constant_(self.log_scale, math.log(4) if l1 else 0.0)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        dense = self.dense(y, table)
        index = targets.expand(dense.shape[:-1])[..., None]
        return dense.gather(-1, index)[..., 0]

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        return torch.log_softmax(self.logits(y, table), dim=-1)

    def logits(self, y: Float[Tensor, "*N E"], table: Embeddings) -> Float[Tensor, "*N V"]:
        """−β E(v), E(v) being the soft count of mismatches up to a constant."""
        if self.config.aggregate is Aggregate.SUM:
            return self.log_scale.exp() * (self.context(y) @ self.codes(table).T)
        if self.config.aggregate is Aggregate.CODE_L1:
            q, codes = self.context(y).sigmoid(), self.codes(table).sigmoid()
            apart = torch.cdist(q.flatten(0, -2), codes, p=1).unflatten(0, q.shape[:-1])
            return -self.log_scale.exp() * apart
        a = self.agreements(y, table)
        one = a.sigmoid().sum(-1) if self.config.aggregate is Aggregate.SIGMOID_L1 else a.amin(-1)
        return self.log_scale.exp() * one

    def agreements(self, y: Float[Tensor, "*N E"], table: Embeddings) -> Float[Tensor, "*N V M"]:
        """a_vm: the inner product of word and context inside each group."""
        shape = (self.config.groups, self.config.size)
        q, codes = self.context(y).unflatten(-1, shape), self.codes(table).unflatten(-1, shape)
        a = torch.einsum("...md,vmd->...vm", q, codes)
        return a if self.bias is None else a + self.bias
