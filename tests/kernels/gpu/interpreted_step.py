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
on_the_interpreter = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="a test of Triton's interpreter"
)
RECURRENCES = {"gru", "lstm", "mgu", "rnn", "linear_recurrence"}
"""Modules of kernels with a test here, and those with a test in `interpreted.py`."""


def assert_close(results, references, tolerance=TOLERANCE):
    for result, reference in zip(results, references, strict=True):
        assert result.dtype == torch.float32
        assert (result - reference).abs().max() <= tolerance * (1 + reference.abs().max())


def assert_equal(function, formula, inputs, tolerance=TOLERANCE, *, members=None, node=""):
    """Compare kernels' values and gradients, mapped over members, with a formula in float64."""
    inputs = [tensor.requires_grad_() for tensor in inputs]
    if members:
        function = vmap(function)
        formula = vmap(formula)
    with without_kernels("cpu"):
        results = values_and_gradients(function, inputs)
    recorded = results[0].grad_fn
    assert node in f"{recorded} {recorded.next_functions}"
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    assert_close(results, values_and_gradients(formula, wide), tolerance)


def values_and_gradients(function, inputs):
    """Return the result of a function of tensors, and a weighted sum's gradients."""
    out = function(*inputs)
    generator = torch.Generator(torch.get_default_device()).manual_seed(1)
    upstream = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    return out, *torch.autograd.grad(out, inputs, upstream)


@pytest.mark.parametrize("shape", [(7, 30), (2, 3, 1), (5,), (130, 64)], ids=str)
def test_the_sphere_equals_its_formula(shape):
    torch.manual_seed(0)
    project = partial(project_to_sphere, radius=3.0)
    assert_equal(project, project, [torch.randn(shape)], node="Project")


@pytest.mark.parametrize("norm", [rms_norm, unit])
def test_a_norm_with_a_floor_equals_its_formula(norm):
    def formula(x):
        with without_kernels():
            return norm(x)

    for scale in (0.0, 1e-6, 1e-3, 1.0):
        torch.manual_seed(0)
        assert_equal(norm, formula, [scale * torch.randn(3, 2, 5)], 1e-5, node="Project")


def test_the_sphere_reads_a_parameter_of_all_members_in_place():
    """The rows of a member are contiguous, those of two members are not."""
    torch.manual_seed(0)
    project = partial(project_to_sphere, radius=1.0)
    assert_equal(project, project, [torch.randn(3, 50)[:, 8:38].view(3, 5, 6)], members=3)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-13, 1.0, 1e30])
def test_the_sphere_of_extreme_vectors(scale):
    """Vectors shorter than ε have no second term; its factor must not vanish or overflow."""
    torch.manual_seed(0)
    x = (torch.randn(5, 8) * scale).requires_grad_()
    with without_kernels("cpu"):
        y, gradient = values_and_gradients(lambda v: project_to_sphere(v, 3.0), [x])
    wide = x.detach().double().requires_grad_()
    expected, slope = values_and_gradients(lambda v: project_to_sphere(v, 3.0), [wide])
    assert (y - expected).abs().max() < 3 * TOLERANCE
    assert (gradient - slope).abs().max() <= TOLERANCE * slope.abs().max()


def leading(members):
    """Return the member axis of a shape, if there is one."""
    if members is None:
        return ()
    return (members,)


def mixture_arguments(positions, width, components, vocab, lead=()):
    """Return y, W, b, s and tokens; probabilities of some tokens underflow."""
    torch.manual_seed(0)
    y = torch.randn(*lead, positions, width)
    weight = torch.randn(*lead, components, width)
    bias = torch.randn(*lead, components)
    s = torch.log_softmax(30 * torch.randn(*lead, vocab, components), dim=-2)
    tokens = torch.randint(vocab, (*lead, positions))
    return [y, weight, bias, s], tokens


@pytest.mark.parametrize("sizes", [(70, 6, 5, 19), (3, 5, 33, 4), (1, 3, 1, 2)], ids=str)
def test_the_mixture_equals_its_formula(sizes):
    inputs, tokens = mixture_arguments(*sizes)
    fast = partial(mixture_log_prob, tokens=tokens)
    naive = partial(naive_mixture_log_prob, tokens=tokens)
    assert_equal(fast, naive, inputs, 1e-5, node="Mixture")


@pytest.mark.filterwarnings("ignore:divide by zero")  # log 0, in NumPy
def test_a_token_without_probability_is_minus_infinity():
    inputs, tokens = mixture_arguments(6, 4, 5, 3)
    *gate, s = inputs
    s[1] = -math.inf
    with without_kernels("cpu"):
        out = mixture_log_prob(*gate, s, tokens)
    assert (tokens == 1).any()
    assert out.isneginf().equal(tokens == 1)
    assert out[tokens != 1].isfinite().all()


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


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("smallest_sorted", [0, 2**40], ids=["sorted", "dense"])
def test_rows_of_a_table_equal_those_of_torch(members, smallest_sorted, monkeypatch):
    monkeypatch.setattr(rows, "SORTED", smallest_sorted)
    torch.manual_seed(0)
    lead = leading(members)
    table = torch.randn(*lead, 37, 40)
    tokens = torch.randint(37, (*lead, 10, 8))
    look_up = take_rows

    def naive(table, tokens):
        return torch.nn.functional.embedding(tokens, table)

    if members is not None:
        look_up = vmap(take_rows)
        naive = vmap(naive)
    assert_equal(lambda t: look_up(t, tokens), lambda t: naive(t, tokens), [table])


def test_sums_of_sorted_rows_are_those_of_all_rows_and_the_same_every_time(monkeypatch):
    """Most positions have one token, as padding has; some tokens have none."""
    torch.manual_seed(0)
    drawn = torch.rand(2, 30, 9) < 0.4
    tokens = torch.randint(50, (2, 30, 9)).where(drawn, 7)[:, :, 1:]
    g = torch.randn(2, 240, 5)
    dense = rows.add_rows(g, tokens, 67)
    monkeypatch.setattr(rows, "SORTED", 0)
    first, second = (rows.add_rows(g, tokens, 67) for _ in range(2))
    assert first.equal(second)
    assert_close([first], [dense.double()], 1e-7)
    one_hot = torch.nn.functional.one_hot(tokens.reshape(2, 240), 67).double()
    assert_close([first], [one_hot.mT @ g.double()])


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize(("count", "vocab", "width"), [(9, 67, 6), (70, 5, 33), (1, 130, 16)])
def test_a_tied_softmax_equals_its_formula(members, count, vocab, width):
    """Vectors and tokens of one tile and of several, the last one smaller."""
    torch.manual_seed(0)
    lead = leading(members)
    inputs = [torch.randn(*lead, n, width) for n in (count, vocab)]
    tokens = torch.randint(vocab, (count,))

    def formula(y, table):
        return torch.log_softmax(y @ table.mT, dim=-1)[torch.arange(count), tokens]

    def tied(y, table):
        return tied_log_prob(y, table, tokens)

    def normaliser(y, table):
        return torch.logsumexp(y @ table.mT, dim=-1)

    assert_equal(tied, formula, inputs, members=members, node="TiedSoftmax")
    assert_equal(log_normalisers, normaliser, inputs, members=members, node="TiedSoftmax")


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("vector", [False, True], ids=["per head", "per channel"])
@pytest.mark.parametrize("delta", [False, True], ids=["", "erases"])
def test_matrix_states_equal_the_loop_over_steps(members, vector, delta, monkeypatch):
    """Columns of S in one block and in several, the last one smaller."""
    for numbers in (1024, 8):
        monkeypatch.setattr(matrix_state, "NUMBERS", numbers)
        inputs = [x.float() for x in forms.matrix_inputs(4, 0, vector=vector, delta=delta)]
        if members:
            inputs = [torch.stack([x * (p + 1) for p in range(members)]) for x in inputs]

        def joined(function, *inputs):
            return torch.cat([x.flatten() for x in function(*inputs)])

        scan = partial(joined, forms.scan_matrices)
        assert_equal(scan, partial(joined, forms.matrix_loop), inputs, members=members)


def test_a_word_that_is_no_token_has_no_probability():
    y = torch.randn(3, 4)
    table = torch.randn(5, 4)
    with without_kernels("cpu"):
        scores = tied_log_prob(y, table, torch.tensor([5, 4, -1]))
    assert scores.isnan().tolist() == [True, False, True]


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 6, 5, 19), (3, 4, 70, 16)], ids=str)
def test_a_selective_scan_equals_its_operations(members, signed, sizes):
    """States and channels fill their blocks and do not, and so do steps the chunks of states."""
    torch.manual_seed(0)
    rows, steps, states, width = sizes
    lead = leading(members)
    maps = [torch.randn(*lead, rows, steps, size) for size in (width, width, states, states)]
    rate = torch.rand(*lead, states, width)
    start = torch.randn(*lead, rows, states, width)
    maps[1] = maps[1].exp()

    def scan(x, delta, b, c, rate, start):
        parts = selective_scan(x, delta, rate + 0.1, b, c, start, signed=signed)
        return torch.cat([part.flatten() for part in parts])

    assert_equal(scan, scan, [*maps, rate, start], members=members)


@pytest.mark.parametrize("result", [0, 1])
def test_one_result_of_a_selective_scan_has_a_gradient(result):
    """The other has none; b is the same for all steps, and not in memory for each."""
    torch.manual_seed(0)
    shapes = (2, 5, 4), (2, 5, 4), (3, 4), (3,), (2, 5, 3), (2, 3, 4)
    inputs = [torch.rand(shape) for shape in shapes]

    def scan(x, delta, rate, b, c, start):
        return selective_scan(x, delta, rate, b.expand(c.shape), c, start)[result]

    assert_equal(scan, scan, inputs)


@pytest.mark.parametrize("members", [None, 3])
def test_joint_affine_maps_equal_single_ones(members):
    torch.manual_seed(0)
    lead = leading(members)
    shapes = (4, 3, 6), (6, 2), (6, 5), (2,), (5,)
    inputs = [torch.randn(*lead, *shape) for shape in shapes]

    def joint(x, a, b, c, d):
        return joint_affine(x, (a, b), (c, d))

    def single(x, a, b, c, d):
        return torch.cat([x @ a + c, x @ b + d], dim=-1)

    assert_equal(joint, single, inputs, members=members)


def test_gradients_are_joined_as_copies_of_each():
    """Widths that are no multiple of the alignment leave zeros between the parameters.

    One parameter is a number.
    """
    models = build("hamming_emission", captions().task, members=2, width=5)
    members = [Training(model, Recipe(), seed) for seed, model in enumerate(models)]
    stacked = StackedParameters(members, members[0].model)
    stacked.gradients.fill_(math.nan)
    weights = stacked.weights.values()
    losses = sum((w**3).reshape(2, -1).sum(1) for w in weights)
    stacked.differentiate(losses, accumulate=False)
    expected = {name: 3 * w.detach() ** 2 for name, w in stacked.weights.items()}
    for name, gradient in stacked.layout.views(stacked.gradients).items():
        assert torch.allclose(gradient, expected[name])
    assert stacked.gradients.isfinite().all()


@on_the_interpreter
def test_a_step_has_as_many_launches_at_every_length_and_number_of_members(monkeypatch):
    monkeypatch.undo()  # to fill outputs with NaN is a launch
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    from fuse import Shape
    from launches import GOAL, MOST, count_launches

    shapes = [Shape(P, 40, 8, 8, 8, T) for P, T in ((2, 12), (2, 24), (5, 12))]
    counts = [count_launches(shape).counts.total() for shape in shapes]
    assert len(set(counts)) == 1
    assert counts[0] <= GOAL
    # The softmax over many words, in tiles; the table's gradient, from sorted positions.
    shapes = [Shape(P, 9000, 8, 8, 16, 9) for P in (2, 5)]
    counts = [count_launches(shape, "lstm_lm").counts.total() for shape in shapes]
    assert len(set(counts)) == 1
    assert counts[0] <= MOST


def test_every_kernel_module_is_tested():
    """A new file of kernels needs a test."""
    files = {path.stem for path in Path(gpu.__path__[0]).glob("*.py")}
    assert files - {"__init__", "scan", "blocks", "launch"} == STEP | RECURRENCES
