"""Reading a padded batch backwards equals reversing each sequence within its length."""

import torch
from torch import nn

from lmzoo.blocks.encoder import read_reversed, reversed_order
from lmzoo.cells.base import CELLS
from lmzoo.laws.support import assert_close
from tests.tiny import CLOSE

E, LENGTHS = 3, torch.tensor([5, 1, 3])


def test_the_order_is_reversed_within_the_length_and_keeps_the_pads() -> None:
    expected = [[4, 3, 2, 1, 0], [0, 1, 2, 3, 4], [2, 1, 0, 3, 4]]
    assert reversed_order(LENGTHS, 5).tolist() == expected


@torch.no_grad()
def test_read_reversed_equals_torchs_gru_on_each_reversed_sequence() -> None:
    torch.manual_seed(0)
    cell, library = CELLS.build(CELLS.parse("gru"), E, 5), nn.GRU(E, E, batch_first=True)
    for name, weight in cell.w.named_parameters():
        weight.copy_(getattr(library, f"{name}_l0"))
    x = torch.randn(3, 5, E)
    codes = read_reversed(cell, x, LENGTHS, torch.ones(3, E))
    for row, length in enumerate(LENGTHS.tolist()):
        reversed_x = x[row : row + 1, :length].flip(1)
        _, expected = library(reversed_x, torch.ones(1, 1, E))
        assert_close(codes[row], expected[0, 0], CLOSE, f"code of {length} vectors")
