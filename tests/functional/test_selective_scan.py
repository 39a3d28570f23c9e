"""The kernels of the selective scan equal its recurrence step by step."""

import pytest
import torch
from torch import Tensor

from lmzoo.functional.selective_scan import selective_scan
from tests.laws.support import assert_close
from tests.tiny import FINE

B, T, N, D = 2, 7, 3, 5


def inputs(dtype: torch.dtype, members: tuple[int, ...] = ()) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, T, D), (B, T, D), (N, D), (B, T, N), (B, T, N), (B, N, D)]
    drawn = [torch.randn(*members, *shape, generator=generator, dtype=dtype) for shape in shapes]
    drawn[1], drawn[2] = drawn[1].abs(), drawn[2].exp()
    return drawn


def serial(x: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, s: Tensor) -> list[Tensor]:
    outputs = []
    for t in range(T):
        write = b[:, t, :, None] * (delta * x)[:, t, None]
        s = (-rate * delta[:, t, None]).exp() * s + write
        outputs.append((c[:, t, :, None] * s).sum(1))
    return [torch.stack(outputs, 1), s]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, FINE), (torch.float32, 1e-6)])
def test_outputs_last_state_and_gradients(dtype: torch.dtype, tolerance: float) -> None:
    results = []
    for function, kind in ((selective_scan, dtype), (serial, torch.float64)):
        leaves = [x.to(kind).requires_grad_() for x in inputs(dtype)]
        y, end = function(*leaves)
        loss = (y.sin().sum() + end.sin().sum()).double()
        results.append([y, end, *torch.autograd.grad(loss, leaves)])
    for fast, expected in zip(*results, strict=True):
        scale = 1 + expected.abs().max()
        assert_close(fast.double() / scale, expected / scale, tolerance, "outputs and gradients")


def test_members_of_a_pack_are_scanned_as_if_alone() -> None:
    packed = inputs(torch.float32, (3,))

    def total(*leaves: Tensor) -> Tensor:
        return sum(part.sin().sum() for part in selective_scan(*leaves))

    gradient = torch.func.grad(total, tuple(range(6)))
    results = torch.func.vmap(gradient)(*packed)
    for i in range(3):
        for all_members, one in zip(results, gradient(*(x[i] for x in packed)), strict=True):
            assert all_members[i].equal(one)


def test_nan_is_kept() -> None:
    leaves = inputs(torch.float32)
    leaves[1][0, 2, 1] = torch.nan
    y, end = selective_scan(*leaves)
    assert y[0, 2:, 1].isnan().all()
    assert end[0, :, 1].isnan().all()
    assert y.isnan().sum() == T - 2
