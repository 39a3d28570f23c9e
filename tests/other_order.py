"""Batched products whose sums have an order of their own at every second place, as on some CPUs.

With AMX, the bits of a member's product depend on the number of members and on its place among
them. `other_order()` makes that happen on any CPU; `pytest -p tests.other_order`
runs any tests so.
"""

import contextlib
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

DEVICE = "CPU"


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """Return the products (B, N, M) of a (B, N, K) and b (B, K, M)."""
    members = len(a)
    products = [torch.mm(a[i], b[i]) for i in range(members)]
    # Which members have another order depends on how many there are.
    for i in range(members % 2, members, 2):
        products[i] = torch.mm(a[i].flip(1), b[i].flip(0))
    if products:
        return torch.stack(products)
    return a.new_empty(0, a.shape[1], b.shape[2])


def bmm_out(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    return out.resize_(len(a), a.shape[1], b.shape[2]).copy_(bmm(a, b))


def baddbmm(own: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = alpha * bmm(a, b)
    if beta:
        return product + beta * own
    return product


def baddbmm_in_place(
    own: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    return own.copy_(baddbmm(own, a, b, beta=beta, alpha=alpha))


def baddbmm_out(
    own: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor
) -> Tensor:
    return out.copy_(baddbmm(own, a, b, beta=beta, alpha=alpha))


KERNELS = {
    "bmm": bmm,
    "bmm.out": bmm_out,
    "baddbmm": baddbmm,
    "baddbmm_": baddbmm_in_place,
    "baddbmm.out": baddbmm_out,
}


@contextlib.contextmanager
def other_order() -> Iterator[None]:
    """Replace torch's batched products."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings(action="ignore"):  # it warns of what is asked for
            for name, kernel in KERNELS.items():
                library.impl(name, kernel, DEVICE, allow_override=True)
        yield
    finally:
        library._destroy()


def pytest_configure():
    """Run all tests so; pytest calls this only if `-p` names the module."""
    contextlib.ExitStack().enter_context(other_order())
