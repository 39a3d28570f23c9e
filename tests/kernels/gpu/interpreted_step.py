"""GPU kernels of a training step besides its recurrence, in Triton's interpreter, against float64.

`test_interpreted.py` runs this file in a process with TRITON_INTERPRET=1.
"""

import math
import os
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.func import vmap

from lmzoo.functional.normalise import project_to_sphere, rms_norm, unit
from lmzoo.functional.selective_scan import selective_scan
from lmzoo.functional.tied_softmax import log_normalisers, tied_log_prob
from lmzoo.functional.token_mixture import mixture_log_prob, naive_mixture_log_prob
from lmzoo.kernels import gpu
from lmzoo.kernels.affine import joint_affine
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.kernels.gpu import matrix_state, rows
from lmzoo.kernels.tokens import take_rows
from lmzoo.train.pack_parameters import StackedParameters
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training
from tests.cases import parametrize
from tests.functional import forms
from tests.kernels.gpu.interpreted import build, captions

TOLERANCE = 2e-6
STEP = {
    "matrix_state",
    "rows",
    "selective_scan",
    "sphere",
    "tied_softmax",
    "token_mixture",
}
IN_INTERPRETER = os.environ.get("TRITON_INTERPRET") == "1"
on_the_interpreter = pytest.mark.skipif(not IN_INTERPRETER, reason="a test of Triton's interpreter")
EACH_MEMBERS = parametrize("members", [None, 3])
RECURRENCES = {"gru", "lstm", "mgu", "rnn", "linear_recurrence"}
"""Modules of kernels with a test here, and those with a test in `interpreted.py`."""


def assert_close(results, references, tolerance=TOLERANCE):
    for result, reference in zip(results, references, strict=True):
        assert result.dtype == torch.float32
        error = (result - reference).abs().max()
        scale = 1 + reference.abs().max()
        assert error <= tolerance * scale


def assert_equal(function, formula, inputs, tolerance=TOLERANCE, *, members=None, node=""):
    """Compare kernels' values and gradients, mapped over members, with a formula in float64."""
    inputs = [tensor.requires_grad_() for tensor in inputs]
    if members:
        function = vmap(function)
        formula = vmap(formula)
    with without_kernels("cpu"):
        results = values_and_gradients(function, inputs)
    node_of_result = results[0].grad_fn
    assert node in f"{node_of_result} {node_of_result.next_functions}"
    expected = values_and_gradients(formula, in_double(inputs))
    assert_close(results, expected, tolerance)


def in_double(inputs):
    return [tensor.detach().double().requires_grad_() for tensor in inputs]


def joined(function, *inputs):
    """Return all results of a function in one vector."""
    results = function(*inputs)
    return torch.cat([result.flatten() for result in results])


def values_and_gradients(function, inputs):
    """Return the result of a function of tensors, and a weighted sum's gradients."""
    out = function(*inputs)
    # The kernel and the formula get the same weights.
    torch.manual_seed(1)
    weights = torch.randn(out.shape, dtype=torch.float64)
    upstream = weights.to(out.dtype)
    gradients = torch.autograd.grad(out, inputs, upstream)
    return [out] + list(gradients)


SHAPES = [(7, 30), (2, 3, 1), (5,), (130, 64)]


@parametrize("shape", SHAPES, ids=str)
def test_the_sphere_equals_its_formula(shape):
    project = partial(project_to_sphere, radius=3.0)
    inputs = [torch.randn(shape)]
    assert_equal(project, project, inputs, node="Project")


@parametrize("norm", [rms_norm, unit])
def test_a_norm_with_a_floor_equals_its_formula(norm):
    def formula(x):
        with without_kernels():
            return norm(x)

    for scale in (0.0, 1e-6, 1e-3, 1.0):
        x = scale * torch.randn(3, 2, 5)
        assert_equal(norm, formula, [x], 1e-5, node="Project")


def test_the_sphere_reads_a_parameter_of_all_members_in_place():
    """The rows of a member are contiguous, those of two members are not."""
    project = partial(project_to_sphere, radius=1.0)
    parameters = torch.randn(3, 50)
    # A part of each row, as the pack stores parameters.
    inner = parameters[:, 8:38]
    x = inner.view(3, 5, 6)
    assert_equal(project, project, [x], members=3)


LENGTHS = [0.0, 1e-30, 1e-13, 1.0, 1e30]


@parametrize("scale", LENGTHS)
def test_the_sphere_of_extreme_vectors(scale):
    """Vectors shorter than ε have no second term; its factor must not vanish or overflow."""
    project = partial(project_to_sphere, radius=3.0)
    x = scale * torch.randn(5, 8)
    x.requires_grad_()
    with without_kernels("cpu"):
        y, gradient = values_and_gradients(project, [x])
    expected, slope = values_and_gradients(project, in_double([x]))
    error = (y - expected).abs().max()
    assert error < 3 * TOLERANCE
    error = (gradient - slope).abs().max()
    assert error <= TOLERANCE * slope.abs().max()


def leading(members):
    """Return the member axis of a shape, if there is one."""
    if members is None:
        return ()
    return (members,)


def mixture_arguments(positions, width, components, vocab, lead=()):
    """Return y, W, b, s and tokens; probabilities of some tokens underflow."""
    y = torch.randn(lead + (positions, width))
    weight = torch.randn(lead + (components, width))
    bias = torch.randn(lead + (components,))
    logits = 30 * torch.randn(lead + (vocab, components))
    s = torch.log_softmax(logits, dim=-2)
    tokens = torch.randint(vocab, lead + (positions,))
    return [y, weight, bias, s], tokens


# Positions, width, components and words.
MIXTURES = [(70, 6, 5, 19), (3, 5, 33, 4), (1, 3, 1, 2)]


@parametrize("sizes", MIXTURES, ids=str)
def test_the_mixture_equals_its_formula(sizes):
    inputs, tokens = mixture_arguments(*sizes)
    fast = partial(mixture_log_prob, tokens=tokens)
    naive = partial(naive_mixture_log_prob, tokens=tokens)
    assert_equal(fast, naive, inputs, 1e-5, node="Mixture")


@pytest.mark.filterwarnings("ignore:divide by zero")  # log 0, in NumPy
def test_a_token_without_probability_is_minus_infinity():
    inputs, tokens = mixture_arguments(6, 4, 5, 3)
    *gate, s = inputs
    *gate, s = inputs
    s[1] = -math.inf
    with without_kernels("cpu"):
        out = mixture_log_prob(*gate, s, tokens)
    # The word without probability.
    impossible = tokens == 1
    assert impossible.any()
    assert out.isneginf().equal(impossible)
    assert out[~impossible].isfinite().all()


def test_the_mixture_of_members_equals_its_formula():
    """Members and batches of two axes."""
    inputs, tokens = mixture_arguments(12, 6, 5, 7, lead=(3,))
    inputs[0] = inputs[0].view(3, 4, 3, 6)
    tokens = tokens.view(3, 4, 3)
    fast = partial(_mapped, mixture_log_prob, tokens)
    naive = partial(_mapped, naive_mixture_log_prob, tokens)
    assert_equal(fast, naive, inputs, 1e-5)


def _mapped(function, tokens, *inputs):
    return vmap(function)(*inputs, tokens)


SORTED = parametrize("smallest_sorted", [0, 2**40], ids=["sorted", "dense"])


@EACH_MEMBERS
@SORTED
def test_rows_of_a_table_equal_those_of_torch(members, smallest_sorted, monkeypatch):
    monkeypatch.setattr(rows, "SORTED", smallest_sorted)
    lead = leading(members)
    table = torch.randn(lead + (37, 40))
    tokens = torch.randint(37, lead + (10, 8))
    look_up = take_rows
    embed = torch.nn.functional.embedding
    if members is not None:
        look_up = vmap(take_rows)
        embed = vmap(embed)

    def fast(table):
        return look_up(table, tokens)

    def plain(table):
        return embed(tokens, table)

    assert_equal(fast, plain, [table])


def test_sums_of_sorted_rows_are_those_of_all_rows_and_the_same_every_time(monkeypatch):
    """Most positions have one token, as padding has; some tokens have none."""
    is_token = torch.rand(2, 30, 9) < 0.4
    drawn = torch.randint(50, (2, 30, 9))
    tokens = drawn.where(is_token, 7)[:, :, 1:]
    g = torch.randn(2, 240, 5)
    dense = rows.add_rows(g, tokens, 67)
    monkeypatch.setattr(rows, "SORTED", 0)
    # Twice, with the sorted sum.
    first = rows.add_rows(g, tokens, 67)
    second = rows.add_rows(g, tokens, 67)
    assert first.equal(second)
    assert_close([first], [dense.double()], 1e-7)
    flat = tokens.reshape(2, 240)
    one_hot = torch.nn.functional.one_hot(flat, 67).double()
    expected = one_hot.mT @ g.double()
    assert_close([first], [expected])


TILES = [(9, 67, 6), (70, 5, 33), (1, 130, 16)]


@EACH_MEMBERS
@parametrize(("count", "vocab", "width"), TILES)
def test_a_tied_softmax_equals_its_formula(members, count, vocab, width):
    """Vectors and tokens of one tile and of several, the last one smaller."""
    lead = leading(members)
    sizes = (count, vocab)
    inputs = [torch.randn(lead + (size, width)) for size in sizes]
    tokens = torch.randint(vocab, (count,))

    def formula(y, table):
        log_p = torch.log_softmax(y @ table.mT, dim=-1)
        return log_p[torch.arange(count), tokens]

    def tied(y, table):
        return tied_log_prob(y, table, tokens)

    def normaliser(y, table):
        logits = y @ table.mT
        return torch.logsumexp(logits, dim=-1)

    options = {"members": members, "node": "TiedSoftmax"}
    assert_equal(tied, formula, inputs, **options)
    assert_equal(log_normalisers, normaliser, inputs, **options)


@EACH_MEMBERS
@parametrize("vector", [False, True], ids=["per head", "per channel"])
@parametrize("delta", [False, True], ids=["", "erases"])
def test_matrix_states_equal_the_loop_over_steps(members, vector, delta, monkeypatch):
    """Columns of S in one block and in several, the last one smaller."""
    drawn = forms.matrix_inputs(4, 0, vector=vector, delta=delta)
    inputs = [x.float() for x in drawn]
    if members:
        scales = range(1, members + 1)
        inputs = [torch.stack([scale * x for scale in scales]) for x in inputs]
    scan = partial(joined, forms.scan_matrices)
    loop = partial(joined, forms.matrix_loop)
    for numbers in (1024, 8):
        monkeypatch.setattr(matrix_state, "NUMBERS", numbers)
        assert_equal(scan, loop, inputs, members=members)


def test_a_word_that_is_no_token_has_no_probability():
    y = torch.randn(3, 4)
    table = torch.randn(5, 4)
    tokens = torch.tensor([5, 4, -1])
    with without_kernels("cpu"):
        scores = tied_log_prob(y, table, tokens)
    is_nan = scores.isnan().tolist()
    assert is_nan == [True, False, True]


# Rows, steps, states and channels.
SCANS = [(1, 1, 1, 1), (2, 6, 5, 19), (3, 4, 70, 16)]


@EACH_MEMBERS
@parametrize("signed", [False, True])
@parametrize("sizes", SCANS, ids=str)
def test_a_selective_scan_equals_its_operations(members, signed, sizes):
    """States and channels fill their blocks and do not, and so do steps the chunks of states."""
    rows, steps, states, width = sizes
    lead = leading(members)
    each = (2,) + lead + (rows, steps)
    x, delta = torch.randn(each + (width,))
    b, c = torch.randn(each + (states,))
    rate = torch.rand(lead + (states, width))
    start = torch.randn(lead + (rows, states, width))
    inputs = [x, delta.exp(), rate + 0.1, b, c, start]
    scan = partial(joined, partial(selective_scan, signed=signed))
    assert_equal(scan, scan, inputs, members=members)


@parametrize("result", [0, 1])
def test_one_result_of_a_selective_scan_has_a_gradient(result):
    """The other has none; b is the same for all steps, and not in memory for each."""
    shapes = [(2, 5, 4), (2, 5, 4), (3, 4), (3,), (2, 5, 3), (2, 3, 4)]
    inputs = [torch.rand(shape) for shape in shapes]

    def scan(x, delta, rate, b, c, start):
        # A stride of zero.
        every_step = b.expand(c.shape)
        return selective_scan(x, delta, rate, every_step, c, start)[result]

    assert_equal(scan, scan, inputs)


@EACH_MEMBERS
def test_joint_affine_maps_equal_single_ones(members):
    lead = leading(members)
    shapes = [(4, 3, 6), (6, 2), (6, 5), (2,), (5,)]
    inputs = [torch.randn(lead + shape) for shape in shapes]

    def joint(x, a, b, c, d):
        return joint_affine(x, (a, b), (c, d))

    def single(x, a, b, c, d):
        first = x @ a + c
        second = x @ b + d
        return torch.cat([first, second], dim=-1)

    assert_equal(joint, single, inputs, members=members)


def test_gradients_are_joined_as_copies_of_each():
    """Widths that are no multiple of the alignment leave zeros between the parameters.

    One parameter is a number.
    """
    task = captions().task
    models = build("hamming_emission", task, members=2, width=5)
    members = [Training(model, Recipe(), seed) for seed, model in enumerate(models)]
    stacked = StackedParameters(members, members[0].model)
    # What is not written stays NaN.
    stacked.gradients.fill_(math.nan)
    losses = 0
    for weight in stacked.weights.values():
        # A sum of cubes has the gradient 3 w².
        of_member = (weight**3).reshape(2, -1)
        losses = losses + of_member.sum(1)
    stacked.differentiate(losses, accumulate=False)
    views = stacked.layout.views(stacked.gradients)
    for name, gradient in views.items():
        weight = stacked.weights[name].detach()
        assert torch.allclose(gradient, 3 * weight**2)
    assert stacked.gradients.isfinite().all()


@on_the_interpreter
def test_a_step_has_as_many_launches_at_every_length_and_number_of_members(monkeypatch):
    monkeypatch.undo()  # to fill outputs with NaN is a launch
    folder = Path(__file__).parents[3] / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    from fuse import Shape
    from launches import GOAL, MOST, count_launches

    # Members, then words, sequences and widths, then tokens.
    counts = set()
    sizes = [(2, 12), (2, 24), (5, 12)]
    for members, length in sizes:
        shape = Shape(members, 40, 8, 8, 8, length)
        counts.add(count_launches(shape).counts.total())
    (count,) = counts
    assert count <= GOAL
    # The softmax over many words, in tiles; the table's gradient, from sorted positions.
    counts = set()
    for members in (2, 5):
        shape = Shape(members, 9000, 8, 8, 16, 9)
        counts.add(count_launches(shape, "lstm_lm").counts.total())
    (count,) = counts
    assert count <= MOST


def test_every_kernel_module_is_tested():
    """A new file of kernels needs a test."""
    (folder,) = gpu.__path__
    files = {path.stem for path in Path(folder).glob("*.py")}
    without_kernels_of_their_own = {"__init__", "scan", "blocks", "launch"}
    assert files - without_kernels_of_their_own == STEP | RECURRENCES
