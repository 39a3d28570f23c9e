"""Every fast form of a function equals its plain formula: in values, gradients, packs and NaN."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

from lmzoo.kernels.cpu.tied_softmax import ROWS
from tests.functional.forms import FORMS, agree, flat, floats, results, total
from tests.tiny import quick

POSITIONS = {"log normaliser": [0], "tied softmax": [0, 2]}
"""The inputs with an entry for each position, which may have any number of axes."""

every_form = pytest.mark.parametrize("name", FORMS)


@every_form
@given(st.one_of(st.integers(1, 30), st.integers(ROWS - 1, 3 * ROWS)), st.integers(0, 99))
@quick
def test_values_and_gradients_equal_the_plain_formula(name, count, seed):
    form = FORMS[name]
    inputs = form.draw(count, seed)
    agree(results(form.fast, inputs), results(form.plain, inputs), 1e-10)


@every_form
@given(st.one_of(st.integers(1, 30), st.integers(ROWS - 1, 3 * ROWS)), st.integers(0, 99))
@quick
def test_single_precision_is_near_the_plain_formula(name, count, seed):
    form = FORMS[name]
    # Tokens stay as they are.
    single = [cast(x, torch.float64, torch.float32) for x in form.draw(count, seed)]
    wide = [cast(x, torch.float32, torch.float64) for x in single]
    agree(results(form.fast, single), results(form.plain, wide), form.single)


def cast(x: Tensor, old: torch.dtype, new: torch.dtype) -> Tensor:
    if x.dtype == old:
        return x.to(new)
    return x


def members_of(inputs: list[Tensor], shared: int | None) -> list[list[Tensor]]:
    """Return the inputs of six members, which differ in all but the shared one."""

    def varied(i: int, x: Tensor, member: int) -> Tensor:
        if i == shared:
            return x
        if i in floats(inputs):
            return x * (1 - 0.1 * member)
        return x.roll(member)

    return [[varied(i, x, m) for i, x in enumerate(inputs)] for m in range(6)]


def forms_and_shared_inputs() -> list[tuple[str, int | None]]:
    """Return each form with every input that its members may share, or none."""
    pairs: list[tuple[str, int | None]] = []
    for name, form in FORMS.items():
        pairs.append((name, None))
        for shared in (0, 1, 2):
            if max(1, shared) < len(form.draw(1, 0)):
                pairs.append((name, shared))
    return pairs


class Pack:
    """Six members in two nested maps, (2, .., 3), which may share an input."""

    def __init__(self, name: str, shared: int | None):
        self.form = FORMS[name]
        self.shared = shared
        inputs = self.form.draw(5, 9)
        self.leaves = floats(inputs)
        members = members_of(inputs, shared)
        alone = [results(self.form.plain, member)[-len(self.leaves) :] for member in members]
        self.expected = [torch.stack(parts) for parts in zip(*alone, strict=True)]
        self.packed = []
        for i, parts in enumerate(zip(*members, strict=True)):
            part = inputs[i]
            if i != shared:
                part = torch.stack(parts).unflatten(0, (2, 3)).movedim(1, -1)
            self.packed.append(part)
        self.outer: list[int | None] = [0] * len(inputs)
        self.inner: list[int | None] = [-1] * len(inputs)
        if shared is not None:
            self.outer[shared] = None
            self.inner[shared] = None

    def objective(self, *inputs: Tensor) -> Tensor:
        return total(self.form.fast, *inputs)

    def mapped(self, function: Callable[..., Any]):
        return vmap(vmap(function, tuple(self.inner)), tuple(self.outer))


@pytest.mark.parametrize(("name", "shared"), forms_and_shared_inputs())
def test_gradients_inside_of_nested_maps_equal_those_of_members_alone(name, shared):
    pack = Pack(name, shared)
    gradients = pack.mapped(grad(pack.objective, pack.leaves))(*pack.packed)
    agree([gradient.flatten(0, 1) for gradient in gradients], pack.expected)


@pytest.mark.parametrize(("name", "shared"), forms_and_shared_inputs())
def test_gradients_through_nested_maps_equal_those_of_members_alone(name, shared):
    """A shared input has the sum of the members' gradients."""
    pack = Pack(name, shared)

    def sum_of_members(*inputs: Tensor) -> Tensor:
        return pack.mapped(pack.objective)(*inputs).sum()

    gradients = grad(sum_of_members, pack.leaves)(*pack.packed)
    for i, found, expected in zip(pack.leaves, gradients, pack.expected, strict=True):
        if i == shared:
            agree([found], [expected.sum(0)])
        else:
            agree([found.movedim(-1, 1).flatten(0, 1)], [expected])


MEMORY_ORDERS = {
    "swapped axes": lambda x: x.unflatten(0, (4, 6)).transpose(0, 1),
    "four axes": lambda x: x.unflatten(0, (2, 1, 3, 4)).movedim(0, 2),
    "no axis": lambda x: x[3],
    "no position": lambda x: x[:0],
}


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("order", MEMORY_ORDERS)
def test_positions_have_any_number_of_axes_in_any_memory_order(name, order):
    form = FORMS[name]
    inputs = form.draw(24, 9)
    for i in POSITIONS[name]:
        inputs[i] = MEMORY_ORDERS[order](inputs[i])
    agree(results(form.fast, inputs), results(form.plain, inputs))


@every_form
def test_nan_stays_where_the_plain_formula_has_it(name):
    form = FORMS[name]
    inputs = form.draw(6, 9)
    for i in floats(inputs):
        broken = [x.clone() for x in inputs]
        numbers = broken[i].view(-1)
        numbers[len(numbers) // 2] = torch.nan
        actual = flat(form.fast(*broken))
        expected = flat(form.plain(*broken))
        for fast, plain in zip(actual, expected, strict=True):
            assert fast.isnan().equal(plain.isnan()), f"input {i}"


@every_form
def test_a_second_derivative_is_there_or_raises(name):
    form = FORMS[name]
    inputs = form.draw(3, 9)
    leaves = [inputs[i].requires_grad_() for i in floats(inputs)]
    first, *_ = torch.autograd.grad(total(form.fast, *inputs), leaves, create_graph=True)
    if form.has_second:
        first.abs().sum().backward()
    else:
        with pytest.raises(NotImplementedError):
            first.abs().sum().backward()


@pytest.mark.parametrize("bad", [-11, 10])
def test_a_token_outside_the_vocabulary_raises(bad):
    form = FORMS["tied softmax"]
    *inputs, tokens = form.draw(6, 9)
    tokens[4] = bad
    for function in (form.fast, form.plain):
        with pytest.raises(IndexError):
            function(*inputs, tokens)
