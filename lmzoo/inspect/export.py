"""A cell as a module of plain torch: the operations of one step, as `torch.export` records them.

A value that is used once stands where it is used, if the line is short. `torch.ops.aten` has all
operations of torch.
"""

import warnings
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export

from lmzoo.base.errors import UserError
from lmzoo.cells.base import Cell

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"}
LONGEST = 60
"""Characters of a text that stands inside another one."""
PLACE = ("device", "layout", "pin_memory")
"""Arguments that say where a tensor is. The defaults of torch fit another machine, too."""
LINE = "\n        "
MODULE = '''\
import torch
from torch import nn

aten = torch.ops.aten


class Cell(nn.Module):
    """Weights: {name.replace(".", "_"): w for name, w in cell.state_dict().items()}."""

    def __init__(self):
        super().__init__()
        WEIGHTS

    def step(INPUTS):
        LINES

    def forward(self, x, *state):
        outputs = []
        for x_t in x.unbind(1):
            output, *state = self.step(x_t, *state)
            outputs.append(output)
        return torch.stack(outputs, 1), state
'''


class Step(nn.Module):
    """One step of a cell as a module: x (B, E) and a state to the output and the next state."""

    def __init__(self, cell: Cell):
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        output, after = self.cell.advance(x, state)
        return output, *after


@torch.no_grad()
def cell_source(cell: Cell) -> str:
    """Return a Python file with a module that computes a cell: x (B, T, E), then its state.

    A `UserError` if the state grows with the sequence, as that of attention does.
    """
    if cell.state_size is None:
        raise UserError(f"the state of {cell.name} grows with the sequence; export another cell")
    start = torch.zeros(2, cell.start_size)
    # Copies, because one tensor in two places would be one input of the program.
    state = [part.clone() for part in cell.initial_state(start)]
    inputs = start.new_zeros(2, cell.width), *state
    batch = {0: Dim.DYNAMIC}
    shapes = batch, (batch,) * len(state)
    with warnings.catch_warnings(action="ignore"):  # torch warns of its own copies
        recorded = export(Step(cell), inputs, dynamic_shapes=shapes)
        # Without operations that write into a tensor: a printed line gives a value to one name.
        return _module_source(recorded.run_decompositions({}))


def _module_source(program: ExportedProgram) -> str:
    """Return a recorded step as Python."""
    signature = program.graph_signature
    owned = dict(signature.inputs_to_parameters)
    owned |= signature.inputs_to_buffers
    owned |= signature.inputs_to_lifted_tensor_constants
    tensors = program.state_dict | program.constants
    weights = []
    inputs = ["self"]
    lines = []
    texts: dict[fx.Node, str] = {}
    for node in program.graph.nodes:
        text = node.name
        if text in owned:
            path = owned[text]
            value: Any = tensors[path]
            text = f"self.{path.removeprefix('cell.').replace('.', '_')}"
            made = f"torch.tensor({value.tolist()})"
            if isinstance(value, nn.Parameter):
                made = f"nn.Parameter(torch.empty({tuple(value.shape)}))"
            weights.append(f"{text} = {made}")
        elif node.op == "placeholder":
            inputs.append(text)
        elif node.op == "output":
            lines.append(f"return {_said(list(*node.args), texts)[1:-1]}")
        elif node.users:
            said = _operation(node, texts)
            is_used_once = len(node.users) == 1 and "output" not in map(str, node.users)
            if "getitem" in text or (is_used_once and len(said) < LONGEST):
                text = said
            else:
                lines.append(f"{text} = {said}")
        texts[node] = text
    source = MODULE.replace("INPUTS", ", ".join(inputs))
    source = source.replace("WEIGHTS", LINE.join(weights))
    return source.replace("LINES", LINE.join(lines))


def _operation(node: fx.Node, texts: dict[fx.Node, str]) -> str:
    """Return one operation as Python."""
    arguments = [_said(value, texts) for value in node.args]
    target: Any = node.target
    name = getattr(target, "overloadpacket", target).__name__
    if name == "getitem":
        return "{}[{}]".format(*arguments)
    if name == "slice" and arguments[2:] == ["0", str(2**63 - 1)]:
        # All of a tensor.
        return arguments[0]
    if name in INFIX and not node.kwargs:
        return f"({f' {INFIX[name]} '.join(arguments)})"
    for key, value in node.kwargs.items():
        if key not in PLACE:
            arguments.append(f"{key}={_said(value, texts)}")
    return f"aten.{name}({', '.join(arguments)})"


def _said(value: Any, texts: dict[fx.Node, str]) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_said(part, texts) for part in value)}]"
    if isinstance(value, fx.Node):
        return texts[value]
    # Python has no name for infinity.
    return repr(value).replace("inf", "torch.inf")
