"""The kernel, doubling and a loop give the same values and gradients, real and complex."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from lmzoo.functional.linear_recurrence import doubling_recurrence, linear_recurrence
from lmzoo.laws.support import assert_close
from lmzoo.laws.tiny import FINE
from tests.tiny import quick

DTYPES = [torch.float64, torch.complex128]


def draw(dtype: torch.dtype, *shape: int, seed: int = 0) -> list[Tensor]:
    """Return a, b and start with |a| <= 1; `shape` is (.., T, H)."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(*shape, generator=generator, dtype=dtype) for _ in range(2))
    start = torch.randn(*shape[:-2], shape[-1], generator=generator, dtype=dtype)
    return [(a / a.abs().clamp_min(1)).requires_grad_(), b.requires_grad_(), start.requires_grad_()]


def loop(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    h, states = start, []
    for at, bt in zip(a.unbind(-2), b.unbind(-2), strict=True):
        h = at * h + bt
        states.append(h)
    return torch.stack(states, dim=-2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(steps=st.integers(1, 70), count=st.integers(1, 5), width=st.integers(1, 5))
@quick
def test_three_forms_agree(dtype: torch.dtype, steps: int, count: int, width: int) -> None:
    inputs = draw(dtype, count, steps, width, seed=steps)
    expected = loop(*inputs)
    weight = torch.randn(expected.shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad((expected * weight).real.sum(), inputs)
    for form in (linear_recurrence, doubling_recurrence):
        h = form(*inputs)
        assert_close(h, expected, FINE, form.__name__)
        found = torch.autograd.grad((h * weight).real.sum(), inputs)
        for name, actual, right in zip(("a", "b", "start"), found, gradients, strict=True):
            assert_close(actual, right, 1e-9, f"gradient of {name}, {form.__name__}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_equal_finite_differences(dtype: torch.dtype) -> None:
    assert torch.autograd.gradcheck(linear_recurrence, draw(dtype, 2, 3, 2))


def test_nested_maps_equal_separate_calls() -> None:
    a, b, start = draw(torch.float64, 2, 3, 4, 5, 3)
    mapped = vmap(vmap(linear_recurrence, in_dims=(1, 1, 1)), in_dims=(0, 0, 0))(a, b, start)
    assert_close(mapped, loop(a, b, start).movedim(2, 1), FINE, "h")


def test_a_second_derivative_raises() -> None:
    a, b, start = draw(torch.float64, 1, 3, 2)
    (first,) = torch.autograd.grad(linear_recurrence(a, b, start).sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError):
        first.sum().backward()
