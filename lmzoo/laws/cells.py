"""Laws of a recurrent cell: functions that take a cell in float64 and raise AssertionError."""

import contextlib
import copy
import itertools
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.cells.base import CELLS, Cell, Weights
from lmzoo.cells.cuts import numbered
from lmzoo.functional.precision import HALF
from lmzoo.laws.probes import disturb
from lmzoo.laws.tiny import FINE, assert_close, laws_of, seeded

CellLaw = Callable[[Cell], None]
WIDTH = 3
LENGTH = 4
COUNT = 2
LONG = 2000
ENDS = 100
ROUNDED = 0.05
"""What a decay that is rounded to three digits may lose over 2,000 tokens."""


def build_cell(config: Any, width: int = WIDTH, length: int = LENGTH, seed: int = 0) -> Cell:
    """Build a cell in float64, with weights drawn from this seed."""
    parsed = CELLS.parse(config)
    # Seeds of laws are their own: the caller's draws must not change.
    with seeded(seed):
        cell = CELLS.build(parsed, width, length)
    # In double: laws compare to 1e−12.
    return cell.double()


def disturbed_cell(config: Any) -> Cell:
    """Build a cell with noise on every weight: one that starts at zero hides what it multiplies."""
    cell = build_cell(config)
    disturb(cell)
    return cell


def inputs(cell: Cell, count: int = COUNT, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return random inputs (B, T, E) and initial states (B, S) in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    options: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    x = torch.randn(count, cell.length, cell.width, **options)
    state_size = cell.num_state_vectors * cell.width
    # Starts in [0, 1): some cells have states of probabilities.
    start = torch.rand(count, state_size, **options)
    return x, start


def law_steps_equal_the_scan(cell: Cell):
    """Steps from one input each give the outputs of `scan`."""
    x, start = inputs(cell)
    state = cell.initial_state(start)
    steps = []
    for token in x.split(1, dim=1):
        projected = cell.project(token)
        y, state = cell.step(projected[:, 0], state)
        steps.append(y)
    outputs = torch.stack(steps, 1)
    expected = cell.scan(x, start)
    assert_close(outputs, expected, FINE, "outputs of steps")


def law_blocks_with_carried_state_equal_one_scan(cell: Cell):
    """Blocks that each start from the state after the block before give the outputs of `scan`."""
    x, start = inputs(cell)
    first, rest = x.split([1, cell.length - 1], dim=1)
    # With a kernel, and by steps.
    begin = cell.initial_state(start)
    expected = cell.scan(x, start)
    for scan in (cell.scan_from, cell.naive_scan_from):
        before, state = scan(first, begin)
        after, last = scan(rest, state)
        outputs = torch.cat([before, after], dim=1)
        assert_close(outputs, expected, FINE, "outputs of blocks")
        _, at_end = scan(x, begin)
        for part, whole in zip(last, at_end, strict=True):
            assert_close(part, whole, FINE, "state after the blocks")


def law_outputs_do_not_depend_on_later_inputs(cell: Cell):
    """A change of later inputs changes no output before them."""
    x, start = inputs(cell)
    # A large change, so that a leak is not lost in rounding.
    changed = x.clone()
    changed[:, 2:] += 1
    after = cell.scan(changed, start)
    before = cell.scan(x, start)
    assert_close(after[:, :2], before[:, :2], 0, "leak: outputs before a change")


def law_sequences_of_a_batch_are_independent(cell: Cell):
    """A sequence has the same outputs alone and in a batch."""
    x, start = inputs(cell)
    alone = cell.scan(x[1:], start[1:])
    outputs = cell.scan(x, start)
    assert_close(alone, outputs[1:], FINE, "outputs of a sequence alone")


def law_the_state_has_the_declared_size(cell: Cell):
    """`state_size` floats are in the state of a sequence; None if the state grows."""
    x, start = inputs(cell)
    declared = cell.state_size
    state = cell.initial_state(start)
    first = sum(part[0].numel() for part in state)
    for projected in cell.project(x).unbind(1):
        _, state = cell.step(projected, state)
    last = sum(part[0].numel() for part in state)
    if declared is None:
        assert first != last, f"state_size is None, but the state has {first} floats throughout"
    else:
        sizes = f"{first} floats at the start and {last} at the end"
        assert first == last == declared, f"state_size is {declared}: {sizes}"


def law_half_precision_lasts(cell: Cell):
    """Of 2,000 tokens in half precision, the last are as near to float64 as the first.

    Under autocast, and after `.to()`. A position above 256 is no number of bfloat16.
    """
    with seeded(0):
        longer = type(cell)(cell.config, cell.width, LONG)
        exact = longer.double()
        for weight in exact.parameters():
            if not weight.any():  # it hides what it multiplies; larger noise makes chaos
                nn.init.normal_(weight, std=0.1)
    x, start = inputs(exact, count=1)
    with torch.no_grad():
        expected = exact.scan(x, start)
        size = expected.norm(dim=(0, 2)).mean()
        for dtype, autocast in itertools.product(HALF, (True, False)):
            kind = dtype
            if autocast:
                kind = torch.float32
            rounded = copy.deepcopy(exact).to(kind)
            with torch.autocast("cpu", dtype, enabled=autocast):
                outputs = rounded.scan(x.to(kind), start.to(kind))
            gap = outputs - expected
            errors = gap.norm(dim=(0, 2)) / size
            first = errors[:ENDS].mean()
            last = errors[-ENDS:].mean()
            mode = f"{dtype}"
            if autocast:
                mode += " autocast"
            assert last <= 4 * first + ROUNDED, (
                f"{mode}: relative error {first:.2g} of the first {ENDS} tokens, {last:.2g} of "
                "the last"
            )


CELL_LAWS = tuple(laws_of(sys.modules[__name__]))


def law_outputs_depend_on_inputs(cell: Cell):
    """A change of the inputs changes the outputs."""
    # All inputs change: some cells read few of them.
    x, start = inputs(cell)
    outputs = cell.scan(x, start)
    changed = cell.scan(x + 1, start)
    assert not changed.allclose(outputs), "other inputs give the same outputs"


def law_outputs_depend_on_the_initial_state(cell: Cell):
    """A change of the initial state changes the outputs, if there is one."""
    x, start = inputs(cell)
    if not cell.num_state_vectors:
        return
    _, other = inputs(cell, seed=2)  # a norm removes what is added to all numbers of a state
    outputs = cell.scan(x, start)
    changed = cell.scan(x, other)
    assert not changed.allclose(outputs), "another initial state gives the same outputs"


def law_equal_functions_have_equal_configs(cell: Cell, most: int = 2):
    """Sets of at most `most` cuts that leave one function of the weights have one config.

    Otherwise a sweep trains one model twice, and calls the difference of two seeds an effect. The
    weights are random, and equal by name in all variants. No weight of a variant is without effect,
    so that equal functions have equal numbers of parameters. Variants that ignore their inputs are
    controls, and left out.
    """
    # Configs are the keys: sets of cuts with one config are one variant.
    variants = {}
    kind = type(cell.config)
    for field, options in option_sets(kind).items():
        for size in range(most + 1):
            for chosen in itertools.combinations(options, size):
                cut = {field: list(chosen)}
                with contextlib.suppress(UserError):  # the cell refuses these cuts
                    config = from_dict(kind, to_dict(cell.config) | cut)
                    variants.setdefault(config, f"{field} {numbered(chosen) or 'none'}")
    names = []
    rows = []
    for config, name in variants.items():
        with contextlib.suppress(UserError):  # refused when the cell is built
            variant = type(cell)(config, cell.width, cell.length)
            if not variant.input_blind:
                outputs = _outputs(variant, name)
                rows.append(outputs.flatten())
                names.append(name)
    stack = torch.stack(rows)
    distance = torch.cdist(stack, stack, p=torch.inf)
    # Equal to rounding: other cuts add zeros in another order.
    equal = distance < 1e-12
    # Above the diagonal: each pair once, and none of a variant with itself.
    pairs = [f"{names[i]} = {names[j]}" for i, j in equal.triu(1).nonzero()]
    assert not pairs, f"{len(pairs)} pairs of one function with two configs: {'; '.join(pairs[:9])}"


def option_sets(config: type) -> dict[str, type[StrEnum]]:
    """Return the fields of a config that are sets of options, such as cuts."""
    found = {}
    for field, hint in get_type_hints(config).items():
        if get_origin(hint) is frozenset:
            (kind,) = get_args(hint)
            if issubclass(kind, StrEnum):
                found[field] = kind
    return found


def _outputs(variant: Cell, name: str) -> Tensor:
    """Return the outputs of a variant with weights that depend on their names only."""
    variant.double()
    for path, module in variant.named_modules():
        if isinstance(module, Weights):
            module.fill(lambda weight, shape, path=path: _normal(f"{path}.{weight}", shape))
            continue
        for weight, values in module.named_parameters(recurse=False):
            values.data = _normal(f"{path}.{weight}", values.shape)
    x, start = inputs(variant)
    outputs = variant.naive_scan(x, variant.zero_start + start)
    weights = dict(variant.named_parameters())
    if not weights:
        return outputs.detach()
    upstream = _normal("upstream", outputs.shape)
    leaves = list(weights.values())
    gradients = torch.autograd.grad(outputs, leaves, upstream, allow_unused=True)
    for weight, gradient in zip(weights, gradients, strict=True):
        no_effect = f"{name}: {weight} has no effect"
        assert gradient is not None, no_effect
        assert gradient.any(), no_effect
    return outputs.detach()


def _normal(name: str, shape: tuple[int, ...]) -> Tensor:
    seed = derive_seed(0, name)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    return 0.7 * noise


UNCUT_LAWS = CELL_LAWS + (law_outputs_depend_on_inputs, law_outputs_depend_on_the_initial_state)
"""The laws of a cell without cuts; a cut may remove the inputs or the state."""
