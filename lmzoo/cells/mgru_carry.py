r"""Attention over earlier outputs, which the MGRU can carry instead of its last state.

    prior      j = Σ_{s<t} α_s ⊙ o_s,  α = softmax_s( Λ[t, s] + o_s W_j )     per channel
    bilinear   j = Σ_{s<t} α_s ⊙ o_s,  α = softmax_s( A (o_s · C_w h_{t-1})_w ) per channel

The published code drops the prior Λ by an operator-precedence error; `prior=False` reproduces it.

Source: S0 (DLM47), switches carry=prior (10) and carry=bilinear (11).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.errors import UserError
from lmzoo.functional.initialisers import uniform


class PriorCarry(nn.Module):
    """Attention without queries, with a learned prior over (step, source, channel)."""

    prior: nn.Parameter | None

    def __init__(self, width: int, length: int, *, prior: bool) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.empty(width, width))
        shape = (length, length, width)
        self.register_parameter("prior", nn.Parameter(torch.empty(shape)) if prior else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W_j from U(H), and Λ uniformly from ±1/T."""
        with torch.no_grad():
            self.key.copy_(uniform(tuple(self.key.shape), self.key.shape[0]))
            if self.prior is not None:
                length = self.prior.shape[0]
                self.prior.copy_(uniform(tuple(self.prior.shape), length**2))

    @property
    def unused(self) -> int:
        """Entries of Λ that no score depends on: s ≥ t, t < 2, and the last step, never read."""
        if self.prior is None:
            return 0
        length, _, width = self.prior.shape
        return (length**2 - max(0, (length - 1) * (length - 2) // 2 - 1)) * width

    def forward(
        self, outputs: Float[Tensor, "B s H"], h: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B H"]:
        scores = outputs @ self.key
        if self.prior is not None:
            t, length = outputs.shape[1], len(self.prior)
            if t >= length:
                raise UserError(
                    f"the prior carry of the MGRU is built for {length} tokens, got more; "
                    "use shorter sequences or a longer task.length"
                )
            scores = scores + self.prior[t, :t]
        return (scores.softmax(dim=1) * outputs).sum(dim=1)


class BilinearCarry(nn.Module):
    """Attention with the state as query; a linear layer maps heads to channels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.form = nn.Parameter(torch.empty(heads, width, width))
        self.mix = nn.Linear(heads, width, bias=False)  # a bias would cancel in the softmax
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw C from U(H)."""
        with torch.no_grad():
            self.form.copy_(uniform(tuple(self.form.shape), self.form.shape[1]))

    def forward(
        self, outputs: Float[Tensor, "B s H"], h: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B H"]:
        query = torch.einsum("whk,bk->bwh", self.form, h)
        scores = self.mix(torch.einsum("bsh,bwh->bsw", outputs, query))
        return (scores.softmax(dim=1) * outputs).sum(dim=1)
