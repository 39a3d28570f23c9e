"""The projection to the sphere: vectors of almost no length, and a recurrence's memory order."""

import pytest
import torch
from torch.func import vmap

from lmzoo.functional import sphere
from lmzoo.functional.sphere import MIN_LENGTH, MIN_SIZE, naive_project_to_sphere, project_to_sphere
from lmzoo.laws.support import assert_close
from tests.functional.forms import agree, results
from tests.tiny import FINE


def project(x):
    return project_to_sphere(x, 3.0)


def naive(x):
    return naive_project_to_sphere(x, 3.0)


@pytest.fixture
def _kernel_for_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sphere, "MIN_SIZE", 0)


@pytest.mark.usefixtures("_kernel_for_any_size")
@pytest.mark.parametrize("length", [0.0, MIN_LENGTH / 3, MIN_LENGTH * 3])
def test_vectors_of_almost_zero_length(length: float) -> None:
    x = torch.randn(3, 4, dtype=torch.float64)
    x[1] *= length / x[1].norm()
    agree(results(project, [x]), results(naive, [x]))


def test_small_inputs_use_the_naive_formula() -> None:
    few, many = torch.ones(2, MIN_SIZE // 2 - 1), torch.ones(2, MIN_SIZE // 2)
    names = [project(x.requires_grad_()).grad_fn.name() for x in (few, many)]
    assert ["_Project" in name for name in names] == [False, True]


@pytest.mark.usefixtures("_kernel_for_any_size")
@pytest.mark.parametrize("axes", [(3, 5), (2, 3, 5), (1, 2, 1, 3, 5)])
def test_time_first_inputs_get_time_first_gradients(axes: tuple[int, ...]) -> None:
    """A recurrence writes its outputs and reads its gradients time first."""
    x = torch.randn(4, *axes, dtype=torch.float64).movedim(0, -2).requires_grad_()
    y = project(x)
    assert y.is_contiguous()
    upstreams = torch.randn(3, *y.shape, dtype=torch.float64)
    expected = [torch.autograd.grad(naive(x), x, g)[0] for g in upstreams]
    found = [torch.autograd.grad(y, x, g, retain_graph=True)[0] for g in upstreams]
    assert found[0].movedim(-2, 0).is_contiguous()
    assert_close(torch.stack(found), torch.stack(expected), FINE, "gradients")
    mapped = vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(upstreams)
    assert_close(mapped, torch.stack(expected), FINE, "mapped upstream gradients")
