"""A weight's gradient over all steps, against its steps' shares one by one."""

import pytest
import torch

from lmzoo.kernels.scan.step_buffers import Steps, product_of_all

T, P, H, G = 5, 3, 4, 6


@pytest.mark.parametrize("rows", [2, 50], ids=["few rows", "many rows"])
@pytest.mark.parametrize("members", [(), (P,)], ids=["alone", "members"])
@pytest.mark.parametrize("steps", [T, T - 1], ids=["all steps", "the last steps"])
def test_it_is_the_sum_of_the_steps(rows: int, members: tuple[int, ...], steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    like = {"generator": generator, "dtype": torch.float64}
    q = torch.randn(steps, *members, rows, H, **like)
    d = torch.randn(T, *members, rows, 2 * G, **like)
    found = product_of_all(Steps(q), Steps(d).columns(G, 2 * G))
    shares = [a.mT @ b for a, b in zip(q, d[T - steps :, ..., G:], strict=True)]
    torch.testing.assert_close(found, torch.stack(shares).sum(0))
