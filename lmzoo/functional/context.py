r"""The vectors of the previous W tokens.

    previous(x)[b, t, j-1] = c_j = x[b, t-j+1]      a constant pad vector where t-j+1 < 0

Row t is the context of the token after position t.
"""

import torch
from jaxtyping import Num
from torch import Tensor


def previous(
    x: Num[Tensor, "B t E"], count: int, *, pad: float = 1.0
) -> Num[Tensor, "B t {count} E"]:
    """c_1 .. c_count after each position, nearest first."""
    padded = torch.nn.functional.pad(x, (0, 0, count - 1, 0), value=pad)
    length = x.shape[1]
    return torch.stack([padded[:, j : j + length] for j in reversed(range(count))], dim=2)
