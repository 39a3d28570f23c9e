"""Every fast form of a function equals its plain formula: in values, gradients, packs and NaN."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap

from lmzoo.kernels.cpu.tied_softmax import ROWS
from tests.cases import parametrize
from tests.functional.forms import FORMS, agree, flat, floats, results, total
from tests.tiny import quick

POSITIONS = {"log normaliser": [0], "tied softmax": [0, 2]}
"""The inputs with an entry for each position, which may have any number of axes."""

every_form = parametrize("name", FORMS)
# The last counts need two and three rows of tiles.
FEW = st.integers(1, 30)
COUNTS = st.one_of(FEW, st.integers(ROWS - 1, 3 * ROWS))
SEEDS = st.integers(0, 99)


@every_form
@given(COUNTS, SEEDS)
@quick
def test_values_and_gradients_equal_the_plain_formula(name, count, seed):
    form = FORMS[name]
    inputs = form.draw(count, seed)
    actual = results(form.fast, inputs)
    expected = results(form.plain, inputs)
    agree(actual, expected, 1e-10)


@every_form
@given(COUNTS, SEEDS)
@quick
def test_single_precision_is_near_the_plain_formula(name, count, seed):
    form = FORMS[name]
    inputs = form.draw(count, seed)
    # Tokens stay as they are.
    single = [cast(x, torch.float64, torch.float32) for x in inputs]
    wide = [cast(x, torch.float32, torch.float64) for x in single]
    actual = results(form.fast, single)
    expected = results(form.plain, wide)
    agree(actual, expected, form.single)


def cast(x, old, new):
    if x.dtype == old:
        return x.to(new)
    return x


def members_of(inputs, shared):
    """Return the inputs of six members, which differ in all but the shared one."""

    def varied(i, x, member):
        if i == shared:
            return x
        if i in floats(inputs):
            return x * (1 - 0.1 * member)
        # Tokens of another member are in another order.
        return x.roll(member)

    found = []
    for member in range(6):
        of_member = [varied(i, x, member) for i, x in enumerate(inputs)]
        found.append(of_member)
    return found


def forms_and_shared_inputs():
    """Return each form with every input that its members may share, or none."""
    pairs = []
    for name, form in FORMS.items():
        pairs.append((name, None))
        for shared in (0, 1, 2):
            count = len(form.draw(1, 0))
            if max(1, shared) < count:
                pairs.append((name, shared))
    return pairs


class Pack:
    """Six members in two nested maps, (2, .., 3), which may share an input."""

    def __init__(self, name, shared):
        self.form = FORMS[name]
        self.shared = shared
        inputs = self.form.draw(5, 9)
        self.leaves = floats(inputs)
        members = members_of(inputs, shared)
        count = len(self.leaves)
        alone = []
        for member in members:
            # After the outputs, the gradients.
            gradients = results(self.form.plain, member)[-count:]
            alone.append(gradients)
        by_input = zip(*alone, strict=True)
        self.expected = [torch.stack(parts) for parts in by_input]
        self.packed = []
        for i, parts in enumerate(zip(*members, strict=True)):
            part = inputs[i]
            if i != shared:
                part = torch.stack(parts).unflatten(0, (2, 3))
                # The inner axis is last, the outer one first.
                part = part.movedim(1, -1)
            self.packed.append(part)
        self.outer = [0] * len(inputs)
        self.inner = [-1] * len(inputs)
        if shared is not None:
            self.outer[shared] = None
            self.inner[shared] = None

    def objective(self, *inputs):
        return total(self.form.fast, *inputs)

    def mapped(self, function):
        inner = vmap(function, tuple(self.inner))
        return vmap(inner, tuple(self.outer))


EVERY_PACK = parametrize(("name", "shared"), forms_and_shared_inputs())


@EVERY_PACK
def test_gradients_inside_of_nested_maps_equal_those_of_members_alone(name, shared):
    pack = Pack(name, shared)
    inside = grad(pack.objective, pack.leaves)
    gradients = pack.mapped(inside)(*pack.packed)
    actual = [gradient.flatten(0, 1) for gradient in gradients]
    agree(actual, pack.expected)


@EVERY_PACK
def test_gradients_through_nested_maps_equal_those_of_members_alone(name, shared):
    """A shared input has the sum of the members' gradients."""
    pack = Pack(name, shared)
    mapped = pack.mapped(pack.objective)

    def sum_of_members(*inputs):
        return mapped(*inputs).sum()

    gradients = grad(sum_of_members, pack.leaves)(*pack.packed)
    found = zip(pack.leaves, gradients, pack.expected, strict=True)
    for i, gradient, expected in found:
        if i == shared:
            agree([gradient], [expected.sum(0)])
        else:
            by_member = gradient.movedim(-1, 1).flatten(0, 1)
            agree([by_member], [expected])


def swapped(x):
    axes = x.unflatten(0, (4, 6))
    return axes.transpose(0, 1)


def four_axes(x):
    axes = x.unflatten(0, (2, 1, 3, 4))
    return axes.movedim(0, 2)


MEMORY_ORDERS = {
    "swapped axes": swapped,
    "four axes": four_axes,
    "no axis": lambda x: x[3],
    "no position": lambda x: x[:0],
}


@parametrize("name", POSITIONS)
@parametrize("order", MEMORY_ORDERS)
def test_positions_have_any_number_of_axes_in_any_memory_order(name, order):
    form = FORMS[name]
    inputs = form.draw(24, 9)
    ordered = MEMORY_ORDERS[order]
    for i in POSITIONS[name]:
        inputs[i] = ordered(inputs[i])
    actual = results(form.fast, inputs)
    expected = results(form.plain, inputs)
    agree(actual, expected)


@every_form
def test_nan_stays_where_the_plain_formula_has_it(name):
    form = FORMS[name]
    inputs = form.draw(6, 9)
    for i in floats(inputs):
        broken = [x.clone() for x in inputs]
        numbers = broken[i].view(-1)
        middle = len(numbers) // 2
        numbers[middle] = torch.nan
        actual = flat(form.fast(*broken))
        expected = flat(form.plain(*broken))
        for fast, plain in zip(actual, expected, strict=True):
            is_nan = plain.isnan()
            assert fast.isnan().equal(is_nan), f"input {i}"


@every_form
def test_a_second_derivative_is_there_or_raises(name):
    form = FORMS[name]
    inputs = form.draw(3, 9)
    leaves = [inputs[i].requires_grad_() for i in floats(inputs)]
    value = total(form.fast, *inputs)
    first = torch.autograd.grad(value, leaves, create_graph=True)[0]
    if form.has_second:
        first.abs().sum().backward()
    else:
        with pytest.raises(NotImplementedError):
            first.abs().sum().backward()


@parametrize("bad", [-11, 10])
def test_a_token_outside_the_vocabulary_raises(bad):
    form = FORMS["tied softmax"]
    *inputs, tokens = form.draw(6, 9)
    tokens[4] = bad
    for function in (form.fast, form.plain):
        with pytest.raises(IndexError):
            function(*inputs, tokens)
