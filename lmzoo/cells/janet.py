r"""JANET: the LSTM with a forget gate alone.

    s_t = x_t W_f + b_f + c_{t-1} R_f
    f_t = σ( s_t )        i_t = 1 − σ( s_t − β )
    g_t = tanh( x_t W_g + b_g + c_{t-1} R_g )
    c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t
    y_t = c_t

β is `beta`; with β = 0 it is the cell `lstm_peephole` without peepholes, output gate and output
activation, and with coupled gates. b_g starts at 0 and b_f at log U(1, T − 1), T the length of a
sequence (the chrono initialisation), the state at 0. The matrices are U(±1/√H), as in the LSTM; the
draw of the authors' code is not known here.

van der Westhuizen & Lasenby 2018 (arXiv:1804.04849); Tallec & Ollivier 2018 (arXiv:1804.11188).
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights
from lmzoo.cells.lstm_peephole import OPEN
from lmzoo.kernels.dispatch import has_gpu_kernels, has_product_kernels
from lmzoo.kernels.scan import scan_batch_first


@CELLS("janet")
class Janet(Cell):
    """An LSTM without input gate, output gate and output activation; its state is c."""

    recurrent_weights = ("weight_hh",)
    zero_start = 1.0

    @config
    class Config:
        """The shift of the input gate."""

        beta: float = Field(1.0, allow_inf_nan=False)
        """β: with β > 0 the cell writes more than it forgets."""

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)

        def bias(shape: tuple[int, ...]) -> Tensor:
            times = torch.empty(width).uniform_(1, max(length - 1, 1))
            return torch.cat([times.log(), torch.zeros(width)])

        matrix = (2 * width, width)
        shapes = {"weight_ih": matrix, "weight_hh": matrix, "bias": (2 * width,)}
        self.w = Weights(shapes, cut=set(), fan_in=width, own={"bias": bias})

    def project(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.w.weight_ih, self.w.bias)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        s = (projected + state[0] @ self.w.weight_hh.T)[..., : self.width]
        return {"f": torch.sigmoid(s), "i": torch.sigmoid(self.config.beta - s)}

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        s, g = (projected + state[0] @ self.w.weight_hh.T).chunk(2, dim=-1)
        c = torch.sigmoid(s) * state[0] + torch.sigmoid(self.config.beta - s) * torch.tanh(g)
        return c, (c,)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        done = self.fast_scan_from(x, self.initial_state(start))
        return done and done[0]

    def fast_scan_from(self, x: Inputs, state: State) -> tuple[Tensor, State] | None:
        """Run the kernel of the LSTM: i reads −s, o has no weights and is open."""
        (c,) = state
        if has_gpu_kernels(c) or not has_product_kernels(c):
            return None
        from lmzoo.kernels.cpu.lstm import LSTMScan

        w = self.w
        f, g = w.bias.chunk(2)
        bias = torch.cat([self.config.beta - f, f, g, torch.full_like(g, OPEN)])
        weights = _as_lstm(w.weight_ih).mT, bias, _as_lstm(w.weight_hh).mT
        start = torch.cat([c, c], dim=-1)
        outputs = scan_batch_first(LSTMScan(squash_output=False), x, start, weights)
        return outputs, (outputs[:, -1],)


def _as_lstm(weight: Tensor) -> Tensor:
    """Return the rows of i, f, g, o."""
    f, g = weight.chunk(2)
    return torch.cat([-f, f, g, torch.zeros_like(g)])
