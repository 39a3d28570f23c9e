"""A cell as plain torch: the printed module computes what the cell computes, to the last bit."""

from functools import partial

import pytest
import torch

from lmzoo import UserError
from lmzoo.cells.base import CELLS
from lmzoo.inspect.export import cell_source
from lmzoo.laws.options import cases
from lmzoo.laws.probes import disturb
from lmzoo.laws.tiny import assert_close
from tests.cases import parametrize
from tests.cells.support import make
from tests.cli.run_lmzoo import run_lmzoo


def accept(name, fields):
    """Return the config of a cell with these fields."""
    return make(name, **fields).config


def every_option():
    """Yield each cell, and each cell with one of its options; all but the MGU's are slow."""
    for name in CELLS:
        yield pytest.param({"name": name}, id=name)
        own, _ = cases(CELLS[name].Config, partial(accept, name))
        for label, fields in own:
            marks = []
            if name != "mgu":
                marks.append(pytest.mark.slow)
            yield pytest.param({"name": name} | fields, id=f"{name}-{label}", marks=marks)


@parametrize("config", list(every_option()))
def test_the_printed_module_equals_the_cell(config):
    cell = make(**config).float()
    if cell.state_size is None:
        with pytest.raises(UserError, match=f"the state of {cell.name} grows"):
            cell_source(cell)
        return
    disturb(cell)
    names = {}
    exec(cell_source(cell), names)
    module = names["Cell"]()
    weights = {name.replace(".", "_"): value for name, value in cell.state_dict().items()}
    module.load_state_dict(weights)
    # Another batch than the recorded one.
    x = torch.randn(3, 5, cell.width, requires_grad=True)
    state = cell.initial_state(torch.randn(3, cell.start_size))
    found, after = module(x, *state)
    steps = []
    for x_t in x.unbind(1):
        y, state = cell.advance(x_t, state)
        steps.append(y)
    expected = torch.stack(steps, 1)
    assert torch.equal(found, expected)
    for part, own in zip(after, state, strict=True):
        assert torch.equal(part, own)
    # A cell whose input is cut has no gradient in it.
    zero = {"allow_unused": True, "materialize_grads": True}
    (slope,) = torch.autograd.grad(expected.sin().sum(), x, **zero)
    (printed,) = torch.autograd.grad(found.sin().sum(), x, **zero)
    assert_close(printed, slope, 1e-4, "gradient")


def test_the_command_prints_the_cell_with_its_cuts(capsys):
    run_lmzoo("export", "DLM46", "--set", "model.cell.cuts=input_to_gate,candidate_bias")
    printed = capsys.readouterr().out
    assert "self.w_hf" in printed
    assert "self.w_xf" not in printed
    assert "self.w_bh" not in printed
    assert len(printed.splitlines()) <= 35


def test_a_row_without_a_cell_is_refused(capsys):
    assert run_lmzoo("export", "trigram_latent_crf") == 2
    assert "no recurrent cell" in capsys.readouterr().err
