"""An affine map with a chosen initial spread."""

from torch import nn


class Linear(nn.Linear):
    """Weights N(0, spread²) and bias 0; where spread is None, torch's U(fan-in) for both."""

    def __init__(
        self, into: int, out: int, spread: float | None = None, *, bias: bool = True
    ) -> None:
        self._spread = spread
        super().__init__(into, out, bias=bias)

    def reset_parameters(self) -> None:
        """Draw the weights."""
        if self._spread is None:
            super().reset_parameters()
            return
        nn.init.normal_(self.weight, std=self._spread)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
