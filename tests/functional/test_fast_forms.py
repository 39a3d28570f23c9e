"""Every fast form of a function equals its plain formula: in values, gradients, packs and NaN."""

from collections.abc import Callable
from functools import partial
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
    single = [x.float() if x.dtype == torch.float64 else x for x in inputs]
    wide = [x.double() if x.dtype == torch.float32 else x for x in single]
    agree(results(form.fast, single), results(form.plain, wide), form.single)


def members_of(inputs: list[Tensor], shared: int | None) -> list[list[Tensor]]:
    """Return the inputs of six members, which differ in all but the shared one."""

    def varied(i: int, x: Tensor, member: int) -> Tensor:
        if i == shared:
            return x
        if i in floats(inputs):
            return x * (1 - 0.1 * member)
        return x.roll(member)

    return [[varied(i, x, m) for i, x in enumerate(inputs)] for m in range(6)]


SHARED = [
    (name, shared)
    for name, form in FORMS.items()
    for shared in (None, 0, 1, 2)
    if shared is None or max(1, shared) < len(form.draw(1, 0))
]
"""Form, and the input that all members share."""


@pytest.mark.parametrize(("name", "shared"), SHARED)
def test_packs_in_nested_maps_equal_members_alone(name, shared):
    """With gradients inside of the maps, and through them; members may share an input."""
    form = FORMS[name]
    inputs = form.draw(5, 9)
    of = floats(inputs)
    members = members_of(inputs, shared)
    alone = [results(form.plain, member)[-len(of) :] for member in members]
    expected = [torch.stack(parts) for parts in zip(*alone, strict=True)]
    packed = [
        inputs[i] if i == shared else torch.stack(parts).unflatten(0, (2, 3)).movedim(1, -1)
        for i, parts in enumerate(zip(*members, strict=True))
    ]
    outer: list[int | None] = [0] * len(inputs)
    inner: list[int | None] = [-1] * len(inputs)
    if shared is not None:
        outer[shared] = inner[shared] = None

    def mapped(function: Callable[..., Any]) -> Any:
        return vmap(vmap(function, tuple(inner)), tuple(outer))

    objective = partial(total, form.fast)
    inside = mapped(grad(objective, of))(*packed)
    agree([x.flatten(0, 1) for x in inside], expected)
    through = grad(lambda *inputs: mapped(objective)(*inputs).sum(), of)(*packed)
    for i, found, one_by_one in zip(of, through, expected, strict=True):
        if i == shared:
            agree([found], [one_by_one.sum(0)])
        else:
            agree([found.movedim(-1, 1).flatten(0, 1)], [one_by_one])


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_have_any_number_of_axes_in_any_memory_order(name):
    form = FORMS[name]
    inputs = form.draw(24, 9)
    for change in (
        lambda x: x.unflatten(0, (4, 6)).transpose(0, 1),
        lambda x: x.unflatten(0, (2, 1, 3, 4)).movedim(0, 2),
        lambda x: x[3],
        lambda x: x[:0],
    ):
        spread = [change(x) if i in POSITIONS[name] else x for i, x in enumerate(inputs)]
        agree(results(form.fast, spread), results(form.plain, spread))


@every_form
def test_nan_stays_where_the_plain_formula_has_it(name):
    form = FORMS[name]
    inputs = form.draw(6, 9)
    for i in floats(inputs):
        broken = [x.clone() for x in inputs]
        broken[i].view(-1)[broken[i].numel() // 2] = torch.nan
        pairs = zip(flat(form.fast(*broken)), flat(form.plain(*broken)), strict=True)
        for fast, plain in pairs:
            assert fast.isnan().equal(plain.isnan()), f"input {i}"


@every_form
def test_a_second_derivative_is_right_or_raises(name):
    form = FORMS[name]
    inputs = form.draw(3, 9)
    leaves = [inputs[i].requires_grad_() for i in floats(inputs)]
    first, *_ = torch.autograd.grad(total(form.fast, *inputs), leaves, create_graph=True)
    if not form.has_second:
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
