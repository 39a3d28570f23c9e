"""Subjects of an audit that are not models of the zoo.

function      tokens (B, T), or tokens and lengths (B,) -> log-probabilities; taken as it is
torch module  the same; a copy with noise on its weights, in double precision where it runs
transformers  a causal model of Hugging Face or of flash-linear-attention, which returns logits

Log-probabilities are scores (B, T) or (B, T-1) of the given tokens, or those of all tokens after
each position, (B, T, V).
"""

import contextlib
import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lmzoo.base.errors import UserError, describe_error
from lmzoo.base.own_parts import import_source
from lmzoo.functional.copied import copied
from lmzoo.functional.sequence import full_lengths
from lmzoo.laws.probes import Subject, disturb, few_cuts
from lmzoo.laws.tiny import seeded

TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3}
"""Tolerance in nats for outputs of a type; 0.05 for half precision.

A model in double precision may compute parts, such as rotations or a softmax, in single precision.
"""
COLUMNS = 256
"""Of a larger vocabulary, this number of log-probabilities is compared, and their sum."""
HUGGING_FACE = "hf:"
CACHES = ("cache", "past_key_values", "cache_params")
"""Names of the cache of a model of transformers."""
LAST = 4
"""Tokens that a model with a cache reads one by one, after all others."""


def subject_of(
    model: nn.Module | Callable[..., Any], vocab: int | None, length: int, *, logits: bool
) -> Subject:
    """Return a function or a module as a subject.

    Its config may have the size V of the vocabulary, and the most positions. With `logits` outputs
    are logits (B, T, V), which a softmax normalises. A `UserError` says that the vocabulary is
    unknown, the model fails, or its output has another shape.
    """
    if not callable(model) or isinstance(model, type):
        raise UserError(f"{model!r} is no model: give a function of tokens or a torch module")
    # The config of a Hugging Face model says both.
    vocab, length = _sizes(getattr(model, "config", None), vocab, length)
    tokens = torch.ones(2, length, dtype=torch.int64)
    lengths = torch.full((2,), length)
    runs = _runners(model, tokens, logits=logits)
    run, outputs = _first_that_runs(runs, tokens, lengths)
    _check_outputs(run, outputs, tokens, vocab)
    again = run(tokens, lengths, training=False, noise=1)
    is_random = not again.equal(outputs)
    trains, notes = _modes(run, tokens, vocab, is_random=is_random)
    probes = ["again", "future", "itself"]
    if run.takes_lengths:
        probes.append("pads")
    probes.append("mates")
    if not is_random:  # other shapes have other draws
        probes.append("steps")
    # Half precision: differences of rounding are larger than small leaks.
    tolerance = TOLERANCES.get(outputs.dtype, 0.05)
    return Subject(
        vocab=vocab,
        length=length,
        outputs=run,
        probes=tuple(probes),
        trains=trains,
        other_forms=run.other_forms,
        tolerance=tolerance,
        notes=tuple(notes),
    )


def _sizes(config: Any, vocab: int | None, length: int) -> tuple[int, int]:
    """Return V, and the length T that the model has positions for."""
    if vocab is None:
        vocab = getattr(config, "vocab_size", None)
    if vocab is None or vocab < 2:
        raise UserError("give the size of the vocabulary, at least 2: vocab=V or --vocab V")
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 1:
        length = min(length, positions)
    return vocab, length


def _runners(model: Any, tokens: Tensor, *, logits: bool) -> "list[Runner]":
    """Return the function, or copies of the module in the types in which it may run."""
    transformer = hasattr(model, "prepare_inputs_for_generation")
    if transformer:
        logits = True  # by convention
    if not isinstance(model, nn.Module):
        return [Runner(model, transformer=transformer, logits=logits)]
    made = _made(model, tokens)
    # In double where the model allows it, otherwise in float32.
    copies = [_converted(made, real, complex) for real, complex in PRECISIONS]
    return [Runner(copy, transformer=transformer, logits=logits) for copy in copies]


def _check_outputs(run: "Runner", outputs: Tensor, tokens: Tensor, vocab: int):
    found = list(outputs.shape[:2])
    if run.width not in (0, vocab) or found != list(tokens.shape):
        if run.width:
            found.append(run.width)
        rows, length = tokens.shape
        raise UserError(
            f"for tokens ({rows}, {length}) the model returns {tuple(found)}; expected scores "
            f"({rows}, {length}) or log-probabilities ({rows}, {length}, {vocab})"
        )
    if outputs.isnan().any():
        raise UserError("the model returns NaN, so nothing can be compared; mend it first")


def _modes(run: "Runner", tokens: Tensor, vocab: int, *, is_random: bool) -> tuple[bool, list[str]]:
    """Return whether training mode can be compared, and what the table notes."""
    notes = []
    # Two rows without a token in common.
    numbers = torch.arange(tokens.numel())
    other = numbers.view(tokens.shape) % vocab
    if is_random:
        if run.varies(tokens, other, training=False):
            raise UserError(f"random in evaluation, and {VARYING}; nothing can be compared")
        notes.append(
            "random in evaluation: scores are those of one draw; dropout may still be active"
        )
    trains = isinstance(run.model, nn.Module)
    if trains and run.varies(tokens, other, training=True):
        trains = False
        notes.append(f"not compared in training: {VARYING}")
    if run.left_out:
        notes.append(f"arguments that were not given: {', '.join(run.left_out)}")
    return trains, notes


VARYING = "its tokens decide how many random numbers are drawn, as in RReLU"
PRECISIONS = (
    (torch.float64, torch.complex128),
    (torch.float32, torch.complex64),
)
"""Types of the weights in which a module may run: real and complex."""


def _made(model: nn.Module, tokens: Tensor) -> nn.Module:
    """Return the module; a copy that has read tokens if its weights have no shape before."""
    if not any(map(is_lazy, model.parameters())):
        return model
    # The first call gives lazy parameters their shapes.
    made = Runner(copied(model), transformer=False, logits=True)
    lengths = full_lengths(tokens)
    made.raw(tokens, lengths, training=False, noise=0)
    return made.model


def _converted(model: nn.Module, real: torch.dtype, complex: torch.dtype) -> nn.Module:
    """Return a copy with weights of these types; `Module.to` would make complex ones real."""

    def convert(values: Tensor) -> Tensor:
        if values.is_complex():
            return values.to(complex)
        if values.is_floating_point():
            return values.to(real)
        return values

    return copied(model)._apply(convert)


class ModelError(UserError):
    """The model raised an error."""


def _first_that_runs(
    runs: "list[Runner]", tokens: Tensor, lengths: Tensor
) -> "tuple[Runner, Tensor]":
    """Return the first copy that runs, with noise on its weights, and its outputs."""
    run = runs[0]
    others = runs[1:]
    if isinstance(run.model, nn.Module):
        # A model may start with zeros, behind which nothing shows.
        disturb(run.model)
    try:
        return run, run(tokens, lengths, training=False, noise=0)
    except ModelError:
        if not others:
            raise
    return _first_that_runs(others, tokens, lengths)


class Runner:
    """Calls a model with fixed noise, and brings its outputs to one form."""

    width = 0
    """Size of the last axis of the outputs (B, T, V); 0 for scores (B, T)."""

    def __init__(self, model: Any, *, transformer: bool, logits: bool):
        self.model = model
        self.transformer = transformer
        self.logits = logits
        self.takes_lengths = False
        self.left_out = []
        if transformer:
            return
        call = model
        if isinstance(model, nn.Module):
            call = model.forward
        known = [
            parameter
            for parameter in parameters_of(call).values()
            if parameter.kind <= parameter.POSITIONAL_OR_KEYWORD
        ]
        rest = known[1:]
        if rest and _takes_lengths(rest[0]):
            self.takes_lengths = True
            rest = known[2:]
        self.left_out = [parameter.name for parameter in rest]

    def __call__(self, tokens: Tensor, lengths: Tensor, /, *, training: bool, noise: int) -> Tensor:
        with torch.no_grad():
            found = self.raw(tokens, lengths, training=training, noise=noise)
            return self._shape(found, tokens)

    def raw(
        self, tokens: Tensor, lengths: Tensor, *, training: bool, noise: int, **options: Any
    ) -> Any:
        """Return what the model returns; a call in training mode leaves its buffers as they were.

        In evaluation they are its own: a model that keeps state between calls is found.
        """
        given = [tokens.clone()]  # a model may change tokens
        if self.takes_lengths:
            given.append(lengths)
        if self.transformer:
            # A cache is tried on its own (`_cached`).
            options.setdefault("use_cache", False)
        # The generators of the caller: what a model draws must not change them.
        python_state = random.getstate()
        numpy_state = np.random.get_state()
        kept: Any = contextlib.nullcontext()
        try:
            if isinstance(self.model, nn.Module):
                self.model.train(training)
                if training:
                    kept = restored_buffers(self.model)
            # The same seed for the three generators that a model may draw from.
            with seeded(noise), kept:
                random.seed(noise)
                np.random.seed(noise)
                found = self.model(*given, **options)
                self._end = torch.default_generator.get_state()
                return found
        except (Exception, SystemExit) as error:
            mode = ""
            if training:
                mode = " in training"
            raise ModelError(
                f"the model fails on tokens of shape {tuple(tokens.shape)}{mode}: "
                f"{describe_error(error)}"
            ) from error
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)

    def varies(self, *tokens: Tensor, training: bool) -> bool:
        """Return whether tokens decide how many random numbers are drawn."""
        ends = []
        for own in tokens:
            lengths = full_lengths(own)
            self(own, lengths, training=training, noise=0)
            ends.append(self._end)
        return not all(map(ends[0].equal, ends))

    def warm_up(self, tokens: Tensor, lengths: Tensor, calls: int):
        """Let buffers of training, such as those of a spectral norm, converge."""
        if any(True for _ in self.model.buffers()):
            self.model.train()
            given = [tokens]
            if self.takes_lengths:
                given.append(lengths)
            with torch.no_grad():
                for _ in range(calls):
                    self.model(*given)

    def other_forms(self, tokens: Tensor, once: Tensor, cuts: list[int]) -> Iterator[Tensor]:
        """Yield the outputs with those of prefixes alone, and those of a cache."""
        for u in few_cuts(cuts):
            prefix = tokens[:, :u]
            lengths = full_lengths(prefix)
            alone = self(prefix, lengths, training=False, noise=0)
            # Scores of the prefix alone, then those of the whole pass.
            yield torch.cat([alone, once[:, u:]], dim=1)
        if self.transformer and tokens.shape[1] > LAST:
            yield from self._cached(tokens)

    @torch.no_grad()
    def _cached(self, tokens: Tensor) -> Iterator[Tensor]:
        """Yield the outputs of a model that reads the last tokens one by one from its cache."""
        known = parameters_of(self.model.forward)
        names = [name for name in CACHES if name in known]
        if not names:
            return
        name = names[0]
        parts = []
        cache = None
        length = tokens.shape[1]
        places = torch.arange(length).expand_as(tokens)
        # All but the last tokens at once, then one by one.
        sizes = [length - LAST] + [1] * LAST
        blocks = tokens.split(sizes, 1)
        for part, at in zip(blocks, places.split(sizes, 1), strict=True):
            options = {name: cache, "use_cache": True}
            if "position_ids" in known:
                options["position_ids"] = at
            found = self.raw(part, part, training=False, noise=0, **options)
            cache = found.get(name)
            if cache is None:
                # The model takes a cache but returns none.
                return
            parts.append(self._shape(found, part))
        yield torch.cat(parts, dim=1)

    def _shape(self, found: Any, tokens: Tensor) -> Tensor:
        """Return scores (B, T), or some log-probabilities and the log of the sum of all."""
        values = outputs_of(found).detach()
        if values.is_meta:
            raise UserError("the weights of the model have no values: they are on the device meta")
        if values.dim() == 3:
            self.width = values.shape[-1]
            if self.logits:
                values = values.log_softmax(-1)
            total = values.logsumexp(-1, keepdim=True)
            # Some columns and the sum of all: a leak changes both.
            step = max(1, self.width // COLUMNS)
            some = values[..., ::step]
            return torch.cat([some, total], dim=-1)
        if values.dim() != 2:
            raise UserError(
                f"the model returns a tensor of shape {tuple(values.shape)}; expected scores "
                "(B, T) or log-probabilities (B, T, V)"
            )
        if values.shape[1] == tokens.shape[1] - 1:
            # A score of each token but the first: `<start>` has none.
            return nn.functional.pad(values, (1, 0))
        return values


def _takes_lengths(second: inspect.Parameter) -> bool:
    """Whether the second argument of a model is the lengths of its sequences."""
    if second.default is second.empty:
        return True
    # An argument with a default is an option, unless its name says that it is a length;
    # `cu_seqlens` are starts of sequences in one row.
    if second.name.startswith("cu"):
        return False
    return "len" in second.name


@contextlib.contextmanager
def restored_buffers(module: nn.Module) -> Iterator[None]:
    """Give a module copies of its buffers; afterwards it has its own."""
    kept = [(own._buffers, dict(own._buffers)) for own in module.modules()]
    for own, buffers in kept:
        # Replaced, not overwritten: those of the module keep their memory.
        for name, buffer in buffers.items():
            if buffer is not None:
                own[name] = buffer.clone()
    try:
        yield
    finally:
        for own, buffers in kept:
            for name in set(own.keys()) - buffers.keys():
                del own[name]
            for name, buffer in buffers.items():
                own[name] = buffer


def outputs_of(found: Any) -> Tensor:
    """Return the outputs of a model that may return more: `logits`, or the first large tensor."""
    if isinstance(found, Mapping):
        found = found.get("logits", tuple(found.values()))
    found = getattr(found, "logits", found)
    if isinstance(found, list | tuple):
        for one in found:
            if isinstance(one, Tensor) and one.dim() > 1:
                found = one
                break
    try:
        return torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            f"the model returns {type(found).__name__}; expected a tensor, or one among several: "
            "scores (B, T) or log-probabilities (B, T, V)"
        ) from None


def load_model(name: str) -> nn.Module | Callable[..., Any]:
    """Return the model of `FILE.py:NAME` or `hf:PATH`.

    NAME is a function, a module, or a class of modules without arguments. PATH is a folder with the
    config.json of a causal model, or its name; weights are random. A `UserError` says that there is
    no such file, object or config.
    """
    if name.startswith(HUGGING_FACE):
        return _hugging_face(name.removeprefix(HUGGING_FACE))
    path, _, attribute = name.rpartition(":")
    source = import_source(path)
    if not hasattr(source, attribute):
        raise UserError(f"{path} has no {attribute!r}; give a function or a module of the file")
    found = getattr(source, attribute)
    if not callable(found):
        raise UserError(f"{name} is {found!r:.60}, no model: give a function or a torch module")
    is_class = isinstance(found, type)
    if not is_class or not issubclass(found, nn.Module):
        return found
    needed = list(map(str, _needed(found)))
    if needed:
        raise UserError(
            f"{attribute} needs {', '.join(needed)}; give an object instead: in {path}, "
            f"net = {attribute}(...), and audit {path}:net"
        )
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise UserError(f"{attribute}() fails: {describe_error(error)}") from error


def is_outside(name: str) -> bool:
    """Return whether a name is one that `load_model` takes."""
    if name.startswith(HUGGING_FACE):
        return True
    return ".py:" in name


def _hugging_face(path: str) -> nn.Module:
    try:
        import transformers  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("hf: needs the package transformers: pip install transformers") from error
    with contextlib.suppress(Exception):  # not installed, or without the GPU that it needs
        import fla  # noqa: F401  # pyright: ignore[reportMissingImports]  registers its models
    try:
        config = transformers.AutoConfig.from_pretrained(path)
        return transformers.AutoModelForCausalLM.from_config(config)
    except Exception as error:
        text = describe_error(error).partition("\n")[0]
        raise UserError(f"{HUGGING_FACE}{path} is no causal model: {text}") from error


def parameters_of(call: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a call; none of a call of C++."""
    try:
        return inspect.signature(call).parameters
    except (TypeError, ValueError):
        return {}


def _needed(call: Callable[..., Any]) -> list[inspect.Parameter]:
    needed = []
    for parameter in parameters_of(call).values():
        rest = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        is_needed = parameter.default is parameter.empty
        if is_needed and parameter.kind not in rest:
            needed.append(parameter)
    return needed
