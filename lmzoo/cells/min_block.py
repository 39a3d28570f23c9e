r"""The residual block of the minimal recurrent cells.

    u_t = x_t + W_c conv(x_t) + b_c              depthwise, causal, 4 tokens, with a bias
    r_t = u_t + cell(N(u_t), h_{t-1})            min_gru with 1.5 times the columns, and W_y
    y_t = r_t + W_d gelu(W_u N(r_t) + b_u) + b_d

N is RMSNorm with learned scales; the feed-forward part has 4H units. Matrices and taps start at
U(±1/√fan-in), as torch draws them. Cuts:

    0  convolution   u_t = x_t                2  feed_forward   y_t = r_t
    1  norm          N(u) → u                 3  residual       u_t + cell → cell; r_t + W_d → W_d

Differences from lucidrains' code (`minLM.py`, 38b26e1):

    there                              here                        why
    convolution off; 3 tokens          on; 4 tokens                `convolution` cuts it; 4 are the
                                                                   window of all cells
    ε of N 1.2·10⁻⁷                    10⁻⁵                        that of the other norms
    one N before the logits            the model's `norm`          a cell does not know its depth

Other differences are those of `min_gru` and `min_lstm`.

Feng et al. 2024 (arXiv:2410.01201).
"""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, OwnDraw, Weights
from lmzoo.cells.block import Block, normed
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, convolve, linear, ones, tap_bias, taps

Cut = StrEnum("Cut", "CONVOLUTION NORM FEED_FORWARD RESIDUAL")
INNER = {"name": "min_gru", "expansion": 1.5}


@CELLS("min_block")
class MinBlock(Block):
    """A minimal cell after a short convolution, then a feed-forward part."""

    w: Weights

    @config
    class Config:
        """The cell and the cuts of the block, by name or number."""

        inner: Annotated[Any, CELLS] = Field(default_factory=INNER.copy)
        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()

    def _draw(self) -> tuple[Weights, dict[str, int]]:
        h, cuts = self.width, self.config.cuts
        shapes = {
            "conv": (h, WINDOW), "bias_conv": (h,), "mix": (h, h), "bias_mix": (h,),
            "norm": (h,), "forward_norm": (h,),
            "up": (4 * h, h), "bias_up": (4 * h,), "down": (h, 4 * h), "bias_down": (h,),
        }  # fmt: skip
        own: dict[str, OwnDraw] = {"conv": taps, "bias_conv": tap_bias}
        own |= {"norm": ones, "forward_norm": ones}
        own |= {"down": linear(4 * h), "bias_down": linear(4 * h)}
        weights = {
            Cut.CONVOLUTION: {"conv", "bias_conv", "mix", "bias_mix"},
            Cut.NORM: {"norm", "forward_norm"},
            Cut.FEED_FORWARD: {"forward_norm", "up", "bias_up", "down", "bias_down"},
        }
        cut = set[str]().union(*(weights.get(path, set()) for path in cuts))
        windows = {} if Cut.CONVOLUTION in cuts else {"conv": h}
        return Weights(shapes, cut, fan_in=h, own=own), windows

    def _enter(self, x: Tensor, windows: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return N(u) and u of T steps."""
        w, u = self.w, x
        if w.conv is not None:
            mixed, windows["conv"] = convolve(x, windows["conv"], w.conv, w.bias_conv)
            u = x + nn.functional.linear(mixed, w.mix, w.bias_mix)
        return normed(u, w.norm), u

    def _leave(self, x: Tensor, gate: Tensor, h: Tensor, windows: dict[str, Tensor]) -> Tensor:
        """Return y; `gate` is u."""
        w, linear = self.w, nn.functional.linear
        residual = Cut.RESIDUAL not in self.config.cuts
        r = gate + h if residual else h
        if w.up is None:
            return r
        y = nn.functional.gelu(linear(normed(r, w.forward_norm), w.up, w.bias_up))
        y = linear(y, w.down, w.bias_down)
        return r + y if residual else y
