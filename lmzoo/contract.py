"""What a language model is, and what its number means.

A model assigns to every scored token the natural logarithm of a probability:

    log_prob(tokens, lengths)[b, t] = log P(s_t | s_<t)      0 where not scored

Position 0 holds `<start>` and is never scored; neither is anything at or beyond the
sequence's length. A subclass answers two questions, `score_tokens` and
`next_log_prob`; this base class owns masking. A `conditional` model's answers depend on
what is `given` beside each sequence: a source, tokens (B, S) and lengths (B). The laws
every subclass must obey are in `tests/test_contract.py`: a new model inherits them by
being registered.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.catalogue import ROWS, Row
from lmzoo.config import config
from lmzoo.errors import UserError
from lmzoo.functional.initialisers import redraw
from lmzoo.registry import Registry
from lmzoo.types import Lengths, Mask, NextScores, Prefix, Step, Tokens, TokenScores

PAD, START, END, UNKNOWN = 0, 1, 2, 3
"""Token ids every vocabulary begins with (END and UNKNOWN where a corpus has them)."""

Carried = Any
"""What decoding carries from token to token: nested tuples.

Its tensors all begin with B; what is no tensor is the same for every sequence.
"""


class Score(StrEnum):
    """What `log_prob` is; tables rank within a kind and never across."""

    EXACT = "exact"  # a normalised causal log-likelihood
    LOWER_BOUND = "bound"  # at most the log-likelihood, in expectation
    RECONSTRUCTION = "reconstruction"  # the scored sequence was also an input
    CONDITIONAL = "conditional"  # given another sequence
    OBJECTIVE = "objective"  # what training raises, where no sequence gets a probability


@config
class Task:
    """The sizes a corpus gives a model."""

    vocab: int = Field(ge=2)
    length: int = Field(ge=2)
    """Padded length T, `<start>` included."""
    ends: bool = False
    """Whether a sequence that is whole has `<end>` as its last token."""
    source_vocab: int = Field(0, ge=0)
    """Tokens a source is made of; 0 if nothing is given beside a sequence."""
    source_length: int = Field(0, ge=0)
    """Padded length S of a source."""


class LanguageModel(nn.Module, ABC):
    """A normalised causal density over token sequences, unless `score` says otherwise.

    Every module that owns parameters has `reset_parameters()`, so that a model's
    initial weights are a function of (seed, module name): variants that share a
    module share its initial weights, which pairs them in comparisons.
    """

    name: ClassVar[str]
    Config: ClassVar[type]
    score: ClassVar[Score] = Score.EXACT
    causal: ClassVar[bool] = True
    """Whether a token's score sees only earlier tokens; if not, only totals mean anything."""
    closed_form: ClassVar[bool] = False
    """Fitted by one pass of `fit_closed_form`, not by gradients."""
    conditional: ClassVar[bool] = False
    """Whether `score_tokens` and `next_log_prob` take a source and its lengths as well."""

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__()
        self.config = config
        self.task = task

    @abstractmethod
    def score_tokens(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B T-1"]:
        """Log P(s_t | s_<t) for t = 1..T-1, in nats; values at pads are ignored."""

    @abstractmethod
    def next_log_prob(self, prefix: Prefix) -> NextScores:
        """Log P(v | prefix) for every v of the vocabulary; prefix starts with `<start>`."""

    def begin(self, batch: int, *given: Tensor) -> Carried:
        """What is carried of `batch` sequences before `<start>` is read."""
        return (None, *self.reads(given))

    def advance(self, carried: Carried, token: Step) -> tuple[NextScores, Carried]:
        """Read one token of each sequence: (`next_log_prob` of all that was read, what is carried).

        This default reads the whole prefix again. A model with a state overrides both;
        what it was handed stays as it was, so that two continuations may share it.
        """
        before, *given = carried
        prefix = token[:, None] if before is None else torch.cat([before, token[:, None]], dim=1)
        return self.next_log_prob(prefix, *given), (prefix, *given)

    def log_prob(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> TokenScores:
        """Log P(s_t | s_<t, given) in nats, 0 at position 0 and beyond each length."""
        scores = self.score_tokens(tokens, lengths, *self.reads(given))
        return mask_unscored(tokens, lengths, scores)

    def reads(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What this model is told of what is given: everything if `conditional`, else nothing.

        A plain model on a corpus with sources then shows what the sources are worth.

        Raises:
            UserError: the model needs a source and none is given.
        """
        if self.conditional and not given:
            raise UserError(needs_source_message(self.name))
        return given if self.conditional else ()

    def objective(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> TokenScores:
        """What training raises, per token: `log_prob`, unless the row is about another."""
        return self.log_prob(tokens, lengths, *given)

    latent: str = ""
    """What the discrete latent is (component, parent ...), '' if there is none.

    "A or B" says that value 0 is an A and all others are Bs. A parent or a source is a
    position before t, numbered from `<start>`; K = T-1 of them, times arc types.
    """

    def posterior(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B K T-1"]:
        """P(z_t = k | s_t, s_<t) for t = 1..T-1, of models with a `latent`; sums to 1 over k.

        Probabilities, not logarithms. At pads they mean nothing. Two rows return what
        is near it: slots, a mean field, P(z_t | s_<t); a product of experts, the mean of
        the experts' posteriors, each over its own share of K.
        """
        raise NotImplementedError(f"{self.name} has no discrete latent")

    def prior(self) -> Float[Tensor, "..."] | None:
        """Log P(z) that no word informs, None where there is none; sums to 1 over k.

        (K) of a latent that ignores positions, (K, T-1) of one whose prior differs from
        target to target (parents, a chain's first slot), (N, K, T-1) of N slots.
        """
        return None

    def fit_closed_form(self, tokens: Tokens, lengths: Lengths) -> None:
        """Estimate the model from all training sequences at once (`closed_form` models)."""
        raise NotImplementedError(f"{self.name} is fitted by gradients")

    def report(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> dict[str, float]:
        """What else there is to know of a trained model than its score, by name; {} as a rule."""
        return {}

    @property
    def leaks(self) -> str:
        """Why this configuration sees the future, or '' if it does not."""
        return ""

    @property
    def state_size(self) -> int | None:
        """Floats carried from one step to the next; None if it grows with the prefix."""
        return None


def needs_source_message(name: str) -> str:
    """What to tell who gives a conditional model nothing to condition on."""
    return (
        f"{name} turns one sequence into another and no source is given; use a corpus of pairs: "
        "copy, reverse or multi30k_de_en"
    )


def scored_mask(tokens: Tokens, lengths: Lengths) -> Mask:
    """True where 1 <= t < length."""
    t = torch.arange(tokens.shape[1], device=tokens.device)
    return (t >= 1) & (t < lengths[:, None])


def mask_unscored(tokens: Tokens, lengths: Lengths, values: Float[Tensor, "B T-1"]) -> TokenScores:
    """The values of t = 1..T-1 behind a first one, 0 wherever nothing is scored."""
    t = torch.arange(1, tokens.shape[1], device=tokens.device)
    return nn.functional.pad(values.masked_fill(t >= lengths[:, None], 0.0), (1, 0))


MODELS: Registry[type[LanguageModel]] = Registry("model")

M = TypeVar("M", bound=type[LanguageModel])


def model(
    name: str, *, family: str, source: str, document: str = "", aliases: tuple[str, ...] = ()
) -> Callable[[M], M]:
    """Register a model class, and its default config as a row of the zoo."""

    def register(cls: M) -> M:
        MODELS(name)(cls)
        summary = (cls.__doc__ or "").strip().splitlines()[0]
        ROWS.add(
            name,
            Row(
                name=name, aliases=aliases, family=family, score=cls.score.value,
                document=document, source=source, summary=summary, model=name,
            ),
        )  # fmt: skip
        return cls

    return register


def initialise(model: nn.Module, seed: int, init: str = "default") -> None:
    """Draw every module's parameters from its own stream, keyed by (seed, module name).

    A named `init` (functional/initialisers.py) then draws every matrix again, from the
    stream of its own name. The global generator is left as it was found.
    """
    draws = torch.default_generator  # `torch.manual_seed` formats a stack for every other device
    with torch.random.fork_rng(devices=[]):
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                draws.manual_seed(stream(seed, name))
                reset()
        for name, _ in model.named_parameters() if init != "default" else ():
            draws.manual_seed(stream(seed, "init", name))
            redraw(model, name, init)


def stream(seed: int, *names: object) -> int:
    """A 63-bit seed for the named purpose; distinct names give independent streams."""
    import hashlib

    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
