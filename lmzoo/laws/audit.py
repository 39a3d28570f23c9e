"""Audit a model: is it the normalised causal density that it is declared to be?

The audit runs the probes of `lmzoo.laws.probes` on a model with noise on its weights, in double
precision, at the length at which the model is used. A model of the zoo is built for a vocabulary of
three tokens. A model that does not score from left to right has no causal token scores; all its
sequences are summed at a tiny length instead. A bound, a reconstruction or an objective is probed
for padding and batch only.

Functions, torch modules and models of transformers are audited by the same probes.
"""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from lmzoo import zoo
from lmzoo.base.arguments import called, whole
from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, Texts
from lmzoo.contract import MODELS, LanguageModel, Score, Task
from lmzoo.functional.normalise import Norm
from lmzoo.laws import gradients as backward
from lmzoo.laws.probes import (
    LENGTH,
    PROBES,
    Probes,
    Subject,
    disturbed,
    model_subject,
    sought_leaks,
)  # fmt: skip
from lmzoo.laws.subjects import parameters_of, subject_of
from lmzoo.laws.tiny import TASK, batch, new_model

LONGEST = 1025
"""Longest audited sequences. The cost of attention grows with the square of the length."""
LENGTHS = (131, 302)
"""Lengths at which leaks of a function or module are sought, too: above chunks of 128 and 256."""
SIZES = r".*(chunk|window|block|segment|span|context).*"
"""Names of numbers at which a model may change."""


@dataclass
class Audit:
    """The deviation that each probe finds; None where the probe does not apply."""

    deviations: dict[str, float | None]
    length: int
    tolerance: float
    notes: Texts = ()
    gradients: Mapping[str, float] = field(default_factory=dict)
    """Case -> largest deviation of the backward pass, in units of what is tolerated."""
    wrong_gradients: Texts = ()

    @property
    def faults(self) -> Texts:
        """A message for each deviation above the tolerance; empty for a valid model."""
        found = []
        for name, value in self.deviations.items():
            if value is None:
                continue
            probe = PROBES[name]
            # A NaN is a fault, too: no comparison with it is true.
            if not value <= self.tolerance * probe.slack:
                found.append(probe.fault.format(value))
        return tuple(found) + self.wrong_gradients


@called
def audit(
    model: Any,
    vocab: int | None = None,
    length: int | None = None,
    *,
    task: Task | None = None,
    logits: bool = False,
    gradients: bool = False,
    seed: int = 0,
) -> Audit:
    """Audit a model.

    Args:
        model: A row of the zoo, its config, a model of the zoo or what `build` returns; or a
            function or torch module, as in `lmzoo.laws.subjects`.
        vocab: Size of the vocabulary; not for the zoo.
        length: Length of the sequences, `<start>` included. None: 65; leaks of a function or module
            are sought at 131, 302 and twice each chunk or window that it names, too.
        task: The task of the corpus of a model of the zoo; its length, ends and source length
            replace `length`.
        logits: Whether a function or module returns logits (B, T, V).
        gradients: Whether the backward pass is compared with difference quotients.
        seed: Seed of weights and sequences.

    Raises:
        UserError: A function or module cannot be audited.
    """
    if vocab is not None:
        vocab = whole("vocab", vocab, 1)
    if length is not None:
        length = whole("length", length, 1)
    seed = whole("seed", seed)
    if isinstance(model, str):
        model = zoo.config(model)
    # What a training returns holds the model.
    if isinstance(getattr(model, "module", None), LanguageModel):
        model = model.module
    if isinstance(model, LanguageModel):
        build = functools.partial(new_model, model, seed)
    elif type(model) in {MODELS[name].Config for name in MODELS}:
        build = functools.partial(zoo.build, model, seed=seed)
    else:
        # A module, or a function, that is not of the zoo.
        return _outside(model, vocab, length, logits=logits, gradients=gradients, seed=seed)
    used = replace(TASK, length=length or LENGTH)
    if task is not None:
        used = _shortened(task)
    built = build(task=used)
    # Tables of zeros would hide everything.
    if built.closed_form:
        tokens, lengths = batch(used)
        built.fit_closed_form(tokens, lengths)
    noisy = disturbed(built)
    found = measure(model_subject(noisy), seed)
    is_density = built.score in (Score.EXACT, Score.CONDITIONAL)
    # A model that is not causal has no next token: all sequences of a tiny task are summed instead.
    if is_density and not built.causal:
        tiny = model_subject(disturbed(build(task=TASK)))
        found.deviations["total"] = Probes(tiny).total()
    if gradients:
        losses = dict(backward.zoo_losses(noisy, seed))
        _audit_gradients(found, noisy, losses)
    return found


def _shortened(task: Task) -> Task:
    """Return the task with the tiny vocabulary, and no longer than an audit can read."""
    source_length = TASK.source_length
    if task.source_length:
        source_length = min(task.source_length, LONGEST)
    return replace(
        TASK,
        length=min(task.length, LONGEST),
        ends=task.ends,
        source_length=source_length,
    )


def _outside(
    model: Any,
    vocab: int | None,
    length: int | None,
    *,
    logits: bool,
    gradients: bool,
    seed: int,
) -> Audit:
    subject = subject_of(model, vocab, length or LENGTH, logits=logits)
    found = measure(subject, seed)
    # A length that is given is the only one. Without the probe there is nothing to repeat.
    if not length and found.deviations["future"] is not None:
        _audit_longer_lengths(found, model, subject, seed)
    if gradients:
        if not isinstance(model, nn.Module):
            raise UserError("--gradients needs a torch module; a function has no parameters")
        run: Any = subject.outputs
        losses = backward.outside_losses(run, subject.vocab, subject.length, seed)
        _audit_gradients(found, run.model, dict(losses))
    return found


def _audit_longer_lengths(found: Audit, model: Any, subject: Subject, seed: int):
    """Add the leaks that longer sequences show."""
    most = LONGEST
    if subject.length < LENGTH:
        most = subject.length  # it has no more positions
    worst = found.deviations["future"]
    if worst is None:
        worst = 0.0
    lengths = set(_named_sizes(model)).union(LENGTHS)
    for T in sorted(lengths):
        if most < T:
            break
        longer = replace(subject, length=T)
        try:
            deviation, seen = sought_leaks(longer, seed)
        except UserError as error:
            found.notes += (f"no leak was sought at length {T}: {error}",)
            break
        worst = max(worst, deviation)
        if seen < T - 1:
            found.notes += (
                f"at length {T}, leaks were sought from {seen} of {T - 1} positions, "
                "for lack of time",
            )
    found.deviations["future"] = worst


def _named_sizes(model: Any) -> list[int]:
    """Return twice each chunk, window or block that a model names, and a little more."""
    parts = [model]
    if isinstance(model, nn.Module):
        parts = list(model.modules())
    named = _attributes(getattr(model, "config", None))
    for part in parts:
        named += _attributes(part)
        call = getattr(part, "forward", part)
        for name, parameter in parameters_of(call).items():
            # Also defaults of `forward`: sizes need not be attributes.
            named.append((name, parameter.default))
    lengths = []
    for name, size in named:
        if type(size) is not int or not re.fullmatch(SIZES, name):
            continue
        # Two chunks and a bit: a leak over a boundary shows there.
        length = 2 * size + 2
        if size > 1 and length <= LONGEST:
            lengths.append(length)
    return lengths


def _attributes(part: Any) -> list[tuple[str, Any]]:
    return list(getattr(part, "__dict__", {}).items())


def _audit_gradients(found: Audit, module: nn.Module, losses: Fields):
    parameters, fixed = backward.trained_parameters(module)
    if not parameters:
        found.notes += ("no parameter is trained: it has no gradient",)
        return
    found.gradients, faults = backward.compare_gradients(parameters, losses, fixed)
    estimates = [getattr(own, "estimated_gradient", "") for own in module.modules()]
    said = ", ".join(dict.fromkeys(map(str, filter(None, estimates))))
    if faults and said:
        found.notes += (f"the gradient is an estimate on purpose: {said}",)
    else:
        found.wrong_gradients = tuple(faults)


def measure(subject: Subject, seed: int = 0) -> Audit:
    """Run the probes that apply to a subject."""
    probes = Probes(subject, seed)
    found: dict[str, float | None] = dict.fromkeys(PROBES)
    for name in subject.probes:
        value = getattr(probes, name)()
        found[name] = value
        # What differs between equal calls differs in all other probes.
        if name == "again" and not value <= subject.tolerance:
            break
    return Audit(found, subject.length, subject.tolerance, subject.notes)


def audit_verdict(config: Any, task: Task) -> str:
    """Return the faults of a configuration at the length of a task, '' if there are none.

    Cached per process, by the configuration and what the audit uses of the task.
    """
    # The vocabulary of the corpus would only make the probes slower.
    used = replace(task, vocab=TASK.vocab, source_vocab=TASK.source_vocab)
    fields = MODELS.dump(config)
    text = json.dumps(fields, sort_keys=True)
    return _cached_verdict(text, used)


@functools.cache
def _cached_verdict(config: str, task: Task) -> str:
    model = MODELS.parse(json.loads(config))
    found = audit(model, task=task)
    return "; ".join(found.faults)


def with_published_norm(config: Any) -> Any | None:
    """Return the configuration with the input normalisation of S0, which leaks the future.

    S0 divides inputs by their standard deviation over time. Return None if the configuration has
    no such option, or if its model does not leak with it.
    """
    if not hasattr(config, "norm"):
        return None
    fields = to_dict(config) | {"norm": Norm.TIME_STD}
    try:
        leaking = from_dict(type(config), fields)
    except UserError:
        return None
    if zoo.build(leaking, TASK).leaks:
        return leaking
    return None
