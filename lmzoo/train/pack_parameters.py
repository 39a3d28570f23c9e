r"""Stacked parameters: weights, gradients and optimiser state of all pack members.

    row p of a (P, N) matrix = [ θ_1 of member p | θ_2 of member p | ... ]

One parameter of all members is a slice of columns. The gradient norm, clipping and the optimiser
work on whole rows. A parameter that a member lacks (a cut path) is zero, and its gradient is kept
at zero. The rows are read from the trainings and written back to them, so checkpoints do not show
that a training was packed. Both are a few operations, whatever the number of members
(`pack_layout.py`).

    g ← min(1, c_p / (‖g‖ + 1e-6)) g                  clipping, per member
    m ← m + (1 − β₁)(g − m)          v ← β₂ v + (1 − β₂) g²                    Adam
    x ← x − η_p / (1 − β₁^n) · m / (√(v / (1 − β₂^n)) + ε)
    v ← α v + (1 − α) g²             x ← x − η_p g / (√v + ε)                  RMSprop
    x ← x − η_p g                                                              SGD

n is the number of steps of the member. Weight decay λ adds λx to g; decoupled weight decay (AdamW)
first multiplies x by 1 − ηλ. λ acts on some columns only (`functional/parameters.py`). Columns may
have shares of η, and be matrices that Muon updates (`optimisers.py`). A step of Adam is about 20
operations on (P, N) matrices, whatever P is. torch's fused optimiser takes one learning rate per
call, so it would need one call per member.

Kingma and Ba 2015 (arXiv:1412.6980); Loshchilov and Hutter 2019 (arXiv:1711.05101).
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.functional.parameters import decays
from lmzoo.kernels.device import CPU
from lmzoo.kernels.dispatch import has_gpu_kernels
from lmzoo.train.optimisers import (
    ADAM_EPS,
    ALPHA,
    EPS,
    MATRICES,
    MOMENTUM,
    muon_direction,
    rate_factors,
    roles,
    set_rate,
)
from lmzoo.train.pack_layout import ALIGN, STEP, VALUES, Layout, PackRows, PerMember, Row
from lmzoo.train.recipe import DecayOn, Optimiser, Recipe
from lmzoo.train.trainer import Training, Trainings

KEYS = {Optimiser.RMSPROP: ("square_avg",), Optimiser.SGD: ()}
"""Names of the state of optimisers other than Adam."""


Rates = Sequence[float] | PerMember


class Decays:
    """The weight decay of each row, and the columns on which it acts, the same for all rows."""

    def __init__(self, values: PackRows, columns: Bool[Tensor, "N"]):
        self.rows = values.new_zeros(len(values))
        self.columns = columns.to(values)
        self.any = False

    def set(self, decays: Sequence[float]):
        # Known to the host: whether there is decay decides which operations a step has.
        self.any = any(decays)
        self.rows.copy_(self.rows.new_tensor(decays))

    def each(self, rates: PerMember | float = 1.0) -> PackRows:
        """Return the decay of every number, multiplied by rates."""
        # Columns of pads, and of parameters without decay, are zero.
        by_row = rates * self.rows
        return by_row[:, None] * self.columns


def clip_factors(gradients: PackRows, clips: PerMember) -> Float[Tensor, "P 1"]:
    """Return what clips each row of the gradients, as torch's `clip_grad_norm_`."""
    norms = torch.linalg.vector_norm(gradients, dim=1)
    # Without the small number 0 / 0 would be NaN.
    factors = clips / (norms + 1e-6)
    return factors.clamp(max=1.0)[:, None]


class StackedOptimiser:
    """The optimiser of all rows of a (P, N) matrix; its state is 0 at first."""

    def __init__(
        self,
        recipe: Recipe,
        values: PackRows,
        decays: Decays,
        scales: Float[Tensor, "N"] | None = None,
        matrices: Callable[[PackRows], list[Float[Tensor, "P m n"]]] | None = None,
    ):
        """`scales` are shares of the rate, `matrices` returns views of what Muon updates."""
        self._kind = recipe.optimiser
        self._betas = (0.9, recipe.beta2)
        self._decoupled = recipe.optimiser in (Optimiser.ADAMW, Optimiser.MUON)
        self._values = values
        self._decays = decays
        self._scales = scales
        self._matrices = matrices
        self._new = None
        if matrices is not None:
            # 1 − β₁ of each number: matrices of Muon have a mean of their own.
            self._new = torch.full_like(values, 1 - self._betas[0])
            for own in matrices(self._new):
                own.fill_(1 - MOMENTUM)
        keys = KEYS.get(self._kind, ("exp_avg", "exp_avg_sq"))
        self.state: dict[str, Tensor] = {}
        """The state of all rows, by torch's keys: (P,) steps first, and (P, N)."""
        if keys:
            steps = torch.zeros(len(values), dtype=torch.float32, device=values.device)
            self.state[STEP] = steps
        for key in keys:
            self.state[key] = torch.zeros_like(values)

    @torch.no_grad()
    def step(self, rates: Rates, clips: PerMember, gradients: PackRows):
        """Clip the gradients and update every member; a clip of infinity disables clipping."""
        values = self._values
        rates = torch.as_tensor(rates, dtype=values.dtype, device=values.device)
        g = gradients * clip_factors(gradients, clips.to(values))
        if self._kind in KEYS:
            self._step_without_moments(rates, g)
        else:
            self._step_by_operations(rates, g)

    def _step_without_moments(self, rates: PerMember, g: PackRows):
        decay = self._decays.each()
        g = torch.addcmul(g, self._values, decay)
        change = rates[:, None] * g
        if self._kind is Optimiser.RMSPROP:
            self.state[STEP] += 1
            v = self.state["square_avg"]
            v.mul_(ALPHA).addcmul_(g, g, value=1 - ALPHA)
            # `eps` is added after the root, as torch does.
            change /= v.sqrt().add_(EPS)
        self._values -= change

    def _step_by_operations(self, rates: PerMember, g: PackRows):
        x = self._values
        counts, m, v = self.state.values()
        beta1, beta2 = self._betas
        counts += 1
        # In double: β₂^n of many steps has few digits in float32, and 1 − β₂ at n = 1.
        steps = counts.double()
        scales = 1
        if self._scales is not None:
            scales = self._scales
        if self._decoupled:
            decay = self._decays.each(rates)
            # Decoupled decay shrinks the weights; the other kind is part of the gradient.
            x *= 1 - decay * scales
        else:
            decay = self._decays.each()
            g = torch.addcmul(g, x, decay)
        new = 1 - beta1
        if self._new is not None:
            new = self._new
        m.lerp_(g, new)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        scale = (1 - beta2**steps).rsqrt()
        rate = rates / (1 - beta1**steps)
        root = v.sqrt() * scale.to(v.dtype)[:, None]
        moved = rate.to(m.dtype)[:, None] * m
        change = moved / (root + ADAM_EPS)
        if self._matrices is not None:
            self._step_matrices(rates, change, g)
        x -= change * scales

    def _step_matrices(self, rates: Tensor, change: Tensor, g: Tensor):
        """Replace the change of the matrices by that of Muon; their second moment stays 0."""
        assert self._matrices is not None
        m = self.state["exp_avg"]
        for second in self._matrices(self.state["exp_avg_sq"]):
            # Muon has no second moment: torch's state of a matrix is zeros.
            second.zero_()
        changes = self._matrices(change)
        gradients = self._matrices(g)
        means = self._matrices(m)
        for own, gradient, mean in zip(changes, gradients, means, strict=True):
            direction = muon_direction(gradient, mean)
            # The axis of members comes last, where it meets one rate for each.
            scaled = direction.movedim(0, -1) * rates
            own.copy_(scaled.movedim(-1, 0))


class StackedParameters:
    """The parameters of P trainings in one matrix, with their gradients and their optimiser."""

    def __init__(self, trainings: Trainings, template: nn.Module, rows: int | None = None):
        """Copy the state of the trainings, whose models have the template's parameters or fewer.

        With more `rows` than trainings the others are idle: they are copies of the first training,
        so that their numbers are as good as its own, and nothing of them is written back. Without
        `rows` there are none, and the members cannot be replaced (`replace`).
        """
        self.layout = Layout(template)
        self.values = torch.zeros(rows or len(trainings), self.layout.length)
        # One matrix of all gradients: norms, clips and updates are one operation each.
        self.gradients = torch.zeros_like(self.values)
        self.weights = self.layout.views(self.values)
        """Every parameter, (P, *shape), by name; the loss is a function of these."""
        for weight in self.weights.values():
            weight.requires_grad_()
        self._zeros = self.values.new_zeros(len(self.values), ALIGN)
        self._blank = self.values.new_zeros(self.layout.length)
        gradients = self.layout.views(self.gradients)
        self._gradient_views = list(gradients.values())
        self._set_members(trainings)
        # Without a mask no operation of a step multiplies by ones.
        fewest = min(map(len, self._parameters))
        self.mask = None
        """1 where a member has a parameter, 0 where it lacks it; None if no member lacks any."""
        if fewest < len(self.layout.shapes) or rows is not None:
            self.mask = self._make_mask()
        all_decay = any(t.recipe.weight_decay_on is DecayOn.ALL for t in trainings)
        decaying = {
            name
            for name, parameter in template.named_parameters()
            if all_decay or decays(parameter)
        }
        columns = self.layout.columns([decaying])[0]
        self.decays = Decays(self.values, columns)
        self.decays.set(self._weight_decays)
        recipe = trainings[0].recipe
        scales, matrices = self._grouping(recipe, template)
        self.optimiser = StackedOptimiser(recipe, self.values, self.decays, scales, matrices)
        self.rates: Sequence[float] = [t.recipe.lr for t in self.row_trainings]
        """The last learning rate of each row."""
        self.read()

    @property
    def trainings(self) -> list[Training]:
        """The trainings, which the caller must keep alive."""
        found = []
        for reference in self._trainings:
            training = reference()
            assert training is not None, "a pack member was deleted"
            found.append(training)
        return found

    @property
    def row_trainings(self) -> list[Training]:
        """The training of each row; that of an idle row is the first one."""
        trainings = self.trainings
        idle = len(self.values) - len(trainings)
        return trainings + [trainings[0]] * idle

    def replace(self, trainings: Trainings):
        """Give the rows to other trainings; all tensors stay at their addresses."""
        # Without a mask, other members could lack a parameter of the template.
        assert self.mask is not None
        self._set_members(trainings)
        self.mask.copy_(self._make_mask())
        self.decays.set(self._weight_decays)
        self.read()

    def belongs_to(self, trainings: Trainings) -> bool:
        """Whether the rows are those of these trainings, in this order."""
        own = [reference() for reference in self._trainings]
        return own == list(trainings)

    def differentiate(self, losses: PerMember, *, accumulate: bool):
        """Compute the gradients of the losses; add them to the present ones if `accumulate`."""
        weights = list(self.weights.values())
        # Of the sum: to check given gradients of the losses, torch imports SymPy, for a second.
        gradients = torch.autograd.grad(losses.sum(), weights, materialize_grads=True)
        if has_gpu_kernels(self.gradients) and not accumulate:
            self._join(gradients)
        else:
            # One call for all tensors; separate calls would take several times as long.
            together: Any = torch._foreach_copy_  # pyright: ignore[reportPrivateImportUsage]
            if accumulate:
                together = torch._foreach_add_  # pyright: ignore[reportPrivateImportUsage]
            together(self._gradient_views, list(gradients))
        if self.mask is not None:
            # A member without this parameter must not learn one from the rows of others.
            self.gradients *= self.mask

    def _join(self, gradients: Sequence[Tensor]):
        """Write all gradients by one launch; a copy of each would be a launch per parameter."""
        parts = []
        for gradient, width in zip(gradients, self.layout.widths, strict=True):
            columns = gradient.reshape(len(gradient), -1)
            parts.append(columns)
            padding = width - columns.shape[1]
            if padding:
                parts.append(self._zeros[:, :padding])
        parts = [part for part in parts if part.numel()]
        torch.cat(parts, dim=1, out=self.gradients)

    @torch.no_grad()
    def read(self):
        """Copy weights and optimiser state from the trainings, into the addresses of recordings."""
        self.values.copy_(self._gather(VALUES))
        # All parameters of a training have made the same number of steps, or none has state yet.
        states = []
        known = {}
        for training, own in zip(self.row_trainings, self._parameters, strict=True):
            state = {}
            if training.optimiser:
                first = next(iter(own.values()))
                state = training.optimiser.state.get(first, {})
            states.append(state)
            if not known:
                known = state
        if not known:
            for numbers in self.optimiser.state.values():
                numbers.zero_()  # the trainings were reset to their start
        for key in known:
            if key == STEP:
                zero = torch.zeros_like(known[STEP])
                steps = [state.get(STEP, zero) for state in states]
                numbers = torch.stack(steps)
            else:
                numbers = self._gather(key)
            self.optimiser.state[key].copy_(numbers)

    @torch.no_grad()
    def read_best(self):
        """Copy the weights of the best epoch from the trainings; the next `read` undoes it."""
        rows = [training.best_values(self.layout) for training in self.row_trainings]
        best = torch.from_numpy(np.stack(rows))
        self.values.copy_(best)

    @torch.no_grad()
    def write_back(self):
        """Copy weights and optimiser state to the trainings, and to the memory of the host."""
        trainings = self.trainings
        for rate, training in zip(self.rates, trainings, strict=False):
            assert training.optimiser is not None
            set_rate(training.optimiser, rate)
        numbers = {VALUES: self.values.detach()} | self.optimiser.state
        if STEP in numbers:  # SGD has no state
            # torch counts the steps of each parameter.
            steps = numbers[STEP][:, None]
            numbers[STEP] = steps.expand(-1, len(self.layout.shapes))
        count = len(trainings)
        if self._hold_given_rows(trainings):
            for key, matrix in numbers.items():
                self._own[key].copy_(matrix[:count])
        else:
            # Members that left keep the rows that they have.
            self._own = {}
            for key, matrix in numbers.items():
                self._own[key] = matrix[:count].clone()
            self._give_rows(trainings)
        host = {key: to_host(matrix).numpy() for key, matrix in self._own.items()}
        for row in self._given:
            row.matrices = host

    def _hold_given_rows(self, trainings: Trainings) -> bool:
        """Whether the tensors of the trainings are still views of the rows that they were given."""
        return self._given == [training.row for training in trainings]

    def _give_rows(self, trainings: Trainings):
        """Make weights and optimiser state of the trainings views of the rows of `_own`."""
        parts = {}
        rows = {}
        for key, matrix in self._own.items():
            parts[key] = self.layout.split(key, matrix)
            rows[key] = matrix.unbind()
        values = parts.pop(VALUES)
        self._given = []
        for p, training in enumerate(trainings):
            assert training.optimiser is not None
            for name, weight in self._parameters[p].items():
                weight.data = values[name][p]
                if parts:
                    state = {key: part[name][p] for key, part in parts.items()}
                    training.optimiser.state[weight] = state
            own = {key: members[p] for key, members in rows.items()}
            state = training.model.state_dict()
            buffers = {
                name: value.clone()
                for name, value in state.items()
                if name not in self.layout.shapes
            }
            row = Row(
                layout=self.layout,
                numbers=own,
                names=list(training.parameters),
                state=list(state),
                buffers=buffers,
                matrices={},
                index=p,
            )
            training.row = row
            self._given.append(row)

    def _gather(self, key: str) -> PackRows:
        """Return the rows of the trainings, 0 where a training has no such number."""
        trainings = self.trainings
        if self._hold_given_rows(trainings):
            # The trainings' tensors are views of `_own`: no copy of each is needed.
            own = self._own[key]
            idle = len(self.values) - len(trainings)
            first = own[:1]
            return torch.cat([own, first.expand(idle, -1)])
        pieces = []
        for training, own in zip(self.row_trainings, self._parameters, strict=True):
            row = training.row
            if row is not None and row.layout.shapes == self.layout.shapes:
                pieces.append(row.numbers[key])
                continue
            found = own
            if key != VALUES:
                assert training.optimiser is not None
                states = training.optimiser.state
                found = {}
                for name, weight in own.items():
                    state = states.get(weight, {})
                    if key in state:
                        found[name] = state[key]
            pieces += self.layout.pieces(found, self._blank)
        return torch.cat(pieces).view(len(self.values), -1)

    def _set_members(self, trainings: Trainings):
        # Weak references, because a training may own the `PackedTrainer` that owns this object.
        self._trainings = [weakref.ref(training) for training in trainings]
        self._parameters = [dict(t.model.named_parameters()) for t in self.row_trainings]
        self._own: dict[str, Tensor] = {}
        """The rows that the trainings' tensors are views of, by the kind of number."""
        self._given: list[Row] = []

    @property
    def _weight_decays(self) -> list[float]:
        return [training.recipe.weight_decay for training in self.row_trainings]

    def _grouping(self, recipe: Recipe, template: nn.Module) -> tuple[Any, Any]:
        """Return the shares of the rate, and a function to views of what Muon updates, or None."""
        factors = rate_factors(recipe, template)
        own = roles(template)
        scales = None
        if any(factor != 1 for factor in factors.values()):
            widths = torch.tensor(self.layout.widths, device=CPU)
            shares = list(factors.values())
            numbers = torch.tensor(shares, dtype=self.values.dtype, device=CPU)
            scales = numbers.repeat_interleave(widths).to(self.values)
        if recipe.optimiser is not Optimiser.MUON:
            return scales, None
        names = [name for name, role in own.items() if role == MATRICES]

        def matrices(rows: PackRows) -> list[Tensor]:
            views = self.layout.views(rows)
            return [views[name] for name in names]

        return scales, matrices

    def _make_mask(self) -> PackRows:
        has = self.layout.columns(self._parameters)
        return has.to(self.values)


def to_host(tensor: Tensor) -> Tensor:
    """Return a copy in the memory of the host: in pinned memory, to which a GPU copies fastest."""
    if tensor.device == CPU:
        return tensor.clone()
    pinned = torch.empty_like(tensor, device=CPU, pin_memory=True)
    return pinned.copy_(tensor)
