"""The gradient of a weight over all steps equals the sum over single steps."""

import pytest
import torch

from lmzoo.kernels.scan.operations import StepBuffer, product_over_steps

T, P, H, G = 5, 3, 4, 6


@pytest.mark.parametrize("rows", [2, 50], ids=["few rows", "many rows"])
@pytest.mark.parametrize("members", [(), (P,)], ids=["no members", "members"])
@pytest.mark.parametrize("steps", [T, T - 1], ids=["all steps", "the last steps"])
def test_product_over_steps(rows: int, members: tuple[int, ...], steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    like = {"generator": generator, "dtype": torch.float64}
    q = torch.randn(steps, *members, rows, H, **like)
    d = torch.randn(T, *members, rows, 2 * G, **like)
    found = product_over_steps(StepBuffer(q), StepBuffer(d).columns(G, 2 * G))
    products = [a.mT @ b for a, b in zip(q, d[T - steps :, ..., G:], strict=True)]
    torch.testing.assert_close(found, torch.stack(products).sum(0))
