r"""Compare the backward pass of a model with difference quotients, in double precision.

    ∇L · d   against   (8 (L(θ + εd) − L(θ − εd)) − L(θ + 2εd) + L(θ − 2εd)) / 12ε

L is a random sum of the outputs at real positions, in training mode with fixed noise. The direction
d joins, for each parameter, its gradient and a random direction, so that neither a wrong size nor a
term that lacks is hidden. The batches are those of a training: one sequence, several, sequences of
different lengths, a short one, and sequences in one row where the model takes `cu_seqlens`.

A fault has to show for every ε: a kink of a ReLU does not, and rounding is measured. What is no
derivative on purpose differs too, such as a straight-through estimator or `detach`: a module that
says so in its attribute `estimated_gradient`, a text, has a note and no fault. Rows of an embedding
that have no gradient by `padding_idx` are left out, embeddings with `max_norm` or
`scale_grad_by_freq`, and frozen parameters.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from lmzoo.base.errors import UserError, describe_error
from lmzoo.contract import START, LanguageModel
from lmzoo.functional.sequence import full_lengths
from lmzoo.functional.token_scores import length_mask, scored_mask
from lmzoo.laws.subjects import Runner, outputs_of, parameters_of, restored_buffers
from lmzoo.laws.tiny import default_source, seeded

TOLERANCE = 1e-5
"""Of a difference quotient, in double precision."""
NOISE = 10.0
"""Differences of rounding that are tolerated."""
BLIND = 0.05
"""A quotient that rounding changes by more says nothing."""
STEPS = (1e-5, 1e-7, 1e-9, 1e-3, 1e-2)
STRETCH = 100.0
"""Most that a direction is longer in a parameter with a small gradient."""
WARM_UP = 30
"""Calls before the first one: a spectral norm has converged."""
PACKED = ("cu_seqlens", "offsets")
"""Names of arguments for the boundaries of sequences in one row."""

Loss = Callable[[], Tensor]
Named = Mapping[str, Tensor]
"""Tensors by the names of their parameters."""


@dataclass(frozen=True)
class Batch:
    """Tokens (B, T) of one case, and which positions are real."""

    name: str
    tokens: Tensor
    lengths: Tensor
    packed: Tensor | None = None
    """Boundaries of sequences in one row."""


def batches(vocab: int, length: int, *, ragged: bool, packed: bool, seed: int) -> list[Batch]:
    """Return the batches in which a backward pass is compared."""
    generator = torch.Generator().manual_seed(seed)

    def full(name: str, rows: int, width: int) -> Batch:
        tokens = torch.randint(vocab, (rows, width), generator=generator)
        tokens[:, 0] = START
        return Batch(name, tokens, full_lengths(tokens))

    # Short sequences take other branches: of convolutions, chunks and windows.
    short = min(5, length)
    found = [
        full("one sequence", 1, length),
        full("3 sequences", 3, length),
        full("2 short sequences", 2, short),
    ]
    several = {length, max(2, length - 1), length // 2 + 1, 2}
    # From long to short, as torch packs sequences.
    lengths = torch.tensor(sorted(several, reverse=True))
    if ragged:
        whole = full("different lengths", len(several), length)
        found.append(replace(whole, lengths=lengths))
    if packed:
        # Ends of sequences in one row, the form of variable-length attention.
        ends = nn.functional.pad(lengths.cumsum(0), (1, 0))
        row = full("packed in one row", 1, int(ends[-1]))
        found.append(replace(row, packed=ends.int()))
    return found


def compare_gradients(
    parameters: Named, losses: Mapping[str, Loss], fixed: Named
) -> tuple[dict[str, float], list[str]]:
    """Return the largest relative deviation of each case, and its faults.

    A loss computes L from the parameters, leaves that are trained. `fixed` are masks of the entries
    that have no gradient on purpose. A fault names the parameter that deviates most by itself.
    """
    deviations = {}
    faults = []
    for case, loss in losses.items():
        try:
            gradients = _gradients(parameters, loss)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"the backward pass fails, {case}: {describe_error(error)}") from error
        deviation = partial(_deviation, parameters, loss, gradients)
        directions = _directions(gradients, fixed, 0)
        others = _directions(gradients, fixed, 1)
        largest = max(deviation(directions)[0], deviation(others)[0])
        deviations[case] = largest
        if not largest <= 1:  # a NaN is a fault, too
            # By parameter, to name the one whose backward pass is wrong.
            alone = {name: deviation({name: direction}) for name, direction in directions.items()}
            name = max(alone, key=lambda own: alone[own][0])
            _, slope, quotient = alone[name]
            faults.append(
                f"gradient: the backward pass of {name} gives {slope:.4g}, a difference "
                f"quotient {quotient:.4g} ({case})"
            )
    return deviations, faults


def _gradients(parameters: Named, loss: Loss) -> dict[str, Tensor]:
    own = list(parameters.values())
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss(), own, materialize_grads=True)
    return {
        name: _real(gradient.to_dense()).detach()
        for name, gradient in zip(parameters, gradients, strict=True)
    }


def _real(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor


def _directions(gradients: Named, fixed: Named, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = {name: float(gradient.norm()) for name, gradient in gradients.items()}
    largest = max(sizes.values()) or 1.0
    found = {}
    for name, gradient in gradients.items():
        noise = _noise(gradient, generator)
        size = sizes[name]
        # Noise alone may be orthogonal to the gradient; with it the slope is large.
        unit = noise / noise.norm()
        if size:
            unit = unit + gradient / size
        least = largest / STRETCH
        # As long as the largest gradient, in parameters with a small one at most STRETCH times it.
        own = unit * largest / max(size, least)
        if name in fixed:
            own = own.masked_fill(fixed[name], 0.0)
        found[name] = own
    return found


def _noise(values: Tensor, generator: torch.Generator) -> Tensor:
    """Return noise of this shape, drawn in double precision."""
    noise = torch.randn(values.shape, generator=generator, dtype=torch.float64)
    return noise.to(values)


def _deviation(
    parameters: Named,
    loss: Loss,
    gradients: Named,
    directions: Named,
) -> tuple[float, float, float]:
    """Return the deviation in units of what is tolerated, the derivative and the quotient."""

    def numbers(name: str) -> Tensor:
        return _real(parameters[name].data)

    def at(step: float) -> float:
        with torch.no_grad():
            for name, direction in directions.items():
                numbers(name).add_(direction, alpha=step)
            try:
                return float(loss())
            finally:
                for name in directions:
                    numbers(name).copy_(kept[name])

    # Copies, because adding and subtracting a step would leave rounding in the weights.
    kept = {name: numbers(name).clone() for name in directions}
    products = [gradients[name] * direction for name, direction in directions.items()]
    parts = [float(product.sum()) for product in products]
    slope = math.fsum(parts)
    size = sum(map(abs, parts))
    here = at(0.0)
    noise = 0.0
    # Steps that are too small to change anything but the rounding.
    for step in (1e-12, -1e-12, 3e-12):
        noise = max(noise, abs(at(step) - here - step * slope))
    best = (math.inf, slope, math.nan)
    before = math.inf
    for step in STEPS:
        # The five-point formula: its error is of the fourth order in the step.
        near = at(step) - at(-step)
        far = at(2 * step) - at(-2 * step)
        quotient = (8 * near - far) / (12 * step)
        scale = max(size, abs(quotient), 1e-30)
        tolerance = TOLERANCE + NOISE * noise / (step * scale)
        if tolerance < BLIND or step == STEPS[-1]:
            found = abs(slope - quotient) / scale / tolerance
            if not math.isnan(found):
                best = min(best, (found, slope, quotient))
            change = abs(quotient - before)
            if best[0] <= 1 or change < abs(quotient - slope) / 100:
                break  # right; or two quotients say the same
            before = quotient
    return best


def trained_parameters(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters that are trained, and masks of those entries that are not."""
    # A parameter that requires a gradient is real or complex: torch refuses other types.
    found: dict[str, Tensor] = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.numel()
    }
    names = {id(parameter): name for name, parameter in found.items()}
    fixed = {}
    for own in module.modules():
        if not isinstance(own, nn.Embedding | nn.EmbeddingBag):
            continue
        name = names.get(id(own.weight))
        if name is None:
            continue
        mask = torch.zeros(own.weight.shape, dtype=torch.bool)
        if own.padding_idx is not None:
            mask[own.padding_idx] = True
        # These change the gradient, or the weights themselves, on purpose.
        if own.scale_grad_by_freq or own.max_norm is not None:
            mask[:] = True
        if mask.any():
            fixed[name] = mask
    return found, fixed


def zoo_losses(model: LanguageModel, seed: int) -> Iterator[tuple[str, Loss]]:
    """Yield the cases of a model of the zoo, and its objective in each."""
    task = model.task
    for own in batches(task.vocab, task.length, ragged=True, packed=False, seed=seed):

        def loss(own: Batch = own) -> Tensor:
            model.train()
            with seeded(seed), restored_buffers(model):
                source = default_source(model, len(own.tokens))
                objective = model.objective(own.tokens, own.lengths, *source)
            scored = scored_mask(own.tokens, own.lengths)
            if scored.shape != objective.shape:
                return _weighted(objective, None)
            return _weighted(objective, scored)

        yield own.name, loss


def outside_losses(run: Runner, vocab: int, length: int, seed: int) -> Iterator[tuple[str, Loss]]:
    """Yield the cases of a module and a random sum of its outputs in each."""
    given = parameters_of(run.model.forward)
    name = None
    for argument in PACKED:
        if name is None and argument in given:
            name = argument
    ragged = run.takes_lengths
    masked = False
    if not ragged:
        masked = "attention_mask" in given
        ragged = masked
    found = batches(vocab, length, ragged=ragged, packed=bool(name), seed=seed)
    shortest = found[2]
    # A warm-up need not cost much.
    run.warm_up(shortest.tokens, shortest.lengths, WARM_UP)
    for own in found:

        def loss(own: Batch = own) -> Tensor:
            real = length_mask(own.lengths, own.tokens.shape[1])
            options = {}
            if masked:
                options["attention_mask"] = real.long()
            if own.packed is not None and name:
                options[name] = own.packed
            returned = run.raw(own.tokens, own.lengths, training=True, noise=seed, **options)
            outputs = outputs_of(returned)
            if real.shape != outputs.shape[:2]:
                return _weighted(outputs, None)
            return _weighted(outputs, real)

        yield own.name, loss


def _weighted(outputs: Tensor, real: Tensor | None) -> Tensor:
    """Return a random sum of the outputs at real positions; of complex ones, of both parts."""
    values = _real(outputs)
    generator = torch.Generator().manual_seed(1)
    weights = _noise(values, generator)
    if real is not None:
        while real.dim() < values.dim():
            real = real[..., None]
        weights = weights * real
    # An output that is not counted may be infinite: 0 · ∞ is no number.
    terms = values * weights
    counted = terms.masked_fill(weights == 0, 0.0)
    return counted.double().sum()
