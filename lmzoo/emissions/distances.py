"""An emission that compares the code of the context with the code of every token."""

import math
from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool, model_validator
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import IntRange
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from lmzoo.functional.parameters import draw_uniform
from lmzoo.functional.token_scores import of_tokens
from lmzoo.types import Embeddings, Vectors

Aggregate = StrEnum("Aggregate", "SIGMOID_L1 MIN SUM CODE_L1")
"""How a token's M agreements give its logit: a soft count, at most 1 per group; the worst group; an
inner product, a tied softmax; or the L1 distance of squashed codes, d = 1."""


Codes = StrEnum("Codes", "LINEAR FREE")
"""The code of a token: a linear map of its embedding, or parameters of its own."""


Groups = Annotated[int, IntRange(4, 64, log=True), Field(ge=1)]
Size = Annotated[int, IntRange(1, 8), Field(ge=1)]


@EMISSIONS("hamming")
class HammingEmission(Emission):
    """A token is likely if its code mismatches the code of the context in few groups.

        q = A y + a                  M vectors of size d from the context
        C_v = K e(v)                 M vectors of size d from the embedding     codes=linear
            | c_v                    a free code of each token, as in S1        codes=free
        a_vm = q_m · C_vm [+ b_m]
        P(v | y) = softmax_v( β Σ_m σ(a_vm) )        aggregate=sigmoid_l1
                 | softmax_v( β min_m a_vm )         aggregate=min
                 | softmax_v( β Σ_m a_vm )           aggregate=sum
                 | softmax_v( −β Σ_m |σ(q_m) − σ(C_vm)| )   aggregate=code_l1, d = 1

    M − Σ_m σ(a_vm) is a soft count of the groups in which token and context disagree. A
    disagreement costs at most β, and agreement in other groups cannot compensate for it, unlike in
    an inner product (`sum`, whose logits have rank at most min(E, M d)). Every token is compared at
    every position, which takes (B, T, V, M) numbers. `code_l1` is a distance: the Hamming distance
    if codes are zeros and ones. The distances from a context to two tokens differ by at most the
    distance of their codes.

    Linear codes are tied to the embeddings, so they span at most E dimensions; beyond M d = E, more
    groups add none.

    Source: S1.
    """

    @config
    class Config:
        """Number and size of the groups, and their aggregation."""

        groups: Groups = 16
        """M, the number of groups."""
        size: Size = 2
        """d, the size of a group."""
        aggregate: Aggregate = Aggregate.SIGMOID_L1
        biased: StrictBool = False
        """Give each group a threshold b_m."""
        codes: Codes = Field(Codes.LINEAR, exclude_if=lambda codes: codes is Codes.LINEAR)
        """`free` in recurrent models."""

        @model_validator(mode="after")
        def _valid_combination(self) -> Any:
            if self.biased and self.aggregate is Aggregate.SUM:
                raise UserError(
                    "biased=True has no effect with aggregate=sum: it shifts all logits equally; "
                    "set biased=False"
                )
            if self.aggregate is Aggregate.CODE_L1:
                if self.size != 1:
                    raise UserError(f"size={self.size}: aggregate=code_l1 needs size=1")
                if self.biased:
                    raise UserError("biased=True: aggregate=code_l1 has no bias; set biased=False")
            return self

    bias: nn.Parameter | None
    free: nn.Parameter | None

    def __init__(self, config: Config, width: int, norm: Norm):
        super().__init__(config, width, norm)
        numbers = config.groups * config.size
        self.context = nn.Linear(width, numbers)
        self.register_parameter("free", None)
        self.codes = None
        # Free codes need the vocabulary, which `own_tokens` gives.
        if config.codes is Codes.LINEAR:
            self.codes = nn.Linear(width, numbers, bias=False)
        bias = None
        if config.biased:
            zeros = torch.empty(config.groups)
            bias = nn.Parameter(zeros)
        self.register_parameter("bias", bias)
        scale = torch.empty(())
        self.log_scale = nn.Parameter(scale)
        self.reset_parameters()

    def reset_parameters(self):
        """Set β so that the logits start near Σ_m a_vm: σ has slope ¼ at 0."""
        log_beta = 0.0
        aggregate = self.config.aggregate
        if aggregate in (Aggregate.SIGMOID_L1, Aggregate.CODE_L1):
            # A distance in [0, G] needs a factor to tell tokens apart from the start.
            log_beta = math.log(4)
        nn.init.constant_(self.log_scale, log_beta)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.free is not None:
            numbers = self.free.shape[1]
            draw_uniform(self.free, numbers)

    def own_tokens(self, vocab: int):
        if self.codes is None:
            numbers = self.context.out_features
            empty = torch.empty(vocab, numbers)
            self.free = nn.Parameter(empty)
            self.reset_parameters()

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        dense = self.dense(y, table)
        # Leading axes of y broadcast against the targets.
        index = targets.expand(dense.shape[:-1])
        return of_tokens(dense, index)

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        logits = self.logits(y, table)
        return logits.log_softmax(-1)

    def token_codes(self, table: Embeddings) -> Float[Tensor, "V C"]:
        """Return the M d numbers of every token; free codes need to know of how many."""
        if self.codes is not None:
            return self.codes(table)
        if self.free is None:
            raise UserError("codes=free is an option of recurrent models; drop it here")
        # A table of its own: made by models that call `own_tokens`.
        return self.free

    def logits(self, y: Vectors, table: Embeddings) -> Float[Tensor, "*N V"]:
        """Return the logits: minus β times the (soft) count of mismatches, up to a constant."""
        aggregate = self.config.aggregate
        beta = self.log_scale.exp()
        if aggregate is Aggregate.SUM:
            codes = self.token_codes(table)
            products = self.context(y) @ codes.T
            return beta * products
        if aggregate is Aggregate.CODE_L1:
            q = self.context(y).sigmoid()
            codes = self.token_codes(table).sigmoid()
            # Flat: `cdist` would copy the codes for every leading axis.
            rows = q.flatten(0, -2)
            distance = torch.cdist(rows, codes, p=1)
            return -beta * distance.unflatten(0, q.shape[:-1])
        a = self.agreements(y, table)
        if aggregate is Aggregate.SIGMOID_L1:
            total = a.sigmoid().sum(-1)
        else:
            # The worst group decides.
            total = a.amin(-1)
        return beta * total

    def agreements(self, y: Vectors, table: Embeddings) -> Float[Tensor, "*N V M"]:
        """Return a_vm, the inner product of token code and context code in each group."""
        shape = (self.config.groups, self.config.size)
        q = self.context(y)
        q = q.unflatten(-1, shape)
        codes = self.token_codes(table)
        codes = codes.unflatten(-1, shape)
        a = torch.einsum("...md,vmd->...vm", q, codes)
        if self.bias is None:
            return a
        return a + self.bias
