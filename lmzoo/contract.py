"""What a language model is, and what its number means.

A model assigns to every scored token the natural logarithm of a probability:

    log_prob(tokens, lengths)[b, t] = log P(s_t | s_<t)      0 where not scored

Position 0 holds `<start>` and is never scored; neither is anything at or beyond the
sequence's length. A subclass answers two questions, `score_tokens` and
`next_log_prob`; this base class owns masking. The laws every subclass must obey are
in `tests/test_contract.py`: a new model inherits them by being registered.
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
from lmzoo.registry import Registry
from lmzoo.types import Lengths, Mask, NextScores, Prefix, Tokens, TokenScores

PAD, START, END, UNKNOWN = 0, 1, 2, 3
"""Token ids every vocabulary begins with (END and UNKNOWN where a corpus has them)."""


class Score(StrEnum):
    """What `log_prob` is; tables rank within a kind and never across."""

    EXACT = "exact"  # a normalised causal log-likelihood
    LOWER_BOUND = "bound"  # at most the log-likelihood, in expectation
    RECONSTRUCTION = "reconstruction"  # the scored sequence was also an input
    CONDITIONAL = "conditional"  # given another sequence
    OBJECTIVE = "objective"  # what training raises, where no sequence gets a probability


@config
class Task:
    """The two sizes a corpus gives a model."""

    vocab: int = Field(ge=2)
    length: int = Field(ge=2)
    """Padded length T, `<start>` included."""


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

    def log_prob(self, tokens: Tokens, lengths: Lengths) -> TokenScores:
        """Log P(s_t | s_<t) in nats, 0 at position 0 and beyond each length."""
        scores = self.score_tokens(tokens, lengths)
        scores = torch.where(scored(tokens, lengths)[:, 1:], scores, scores.new_zeros(()))
        return nn.functional.pad(scores, (1, 0))

    def objective(self, tokens: Tokens, lengths: Lengths) -> TokenScores:
        """What training raises, per token: `log_prob`, unless the row is about another."""
        return self.log_prob(tokens, lengths)

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

    @property
    def leaks(self) -> str:
        """Why this configuration sees the future, or '' if it does not."""
        return ""

    @property
    def state_size(self) -> int | None:
        """Floats carried from one step to the next; None if it grows with the prefix."""
        return None


def scored(tokens: Tokens, lengths: Lengths) -> Mask:
    """True where 1 <= t < length."""
    t = torch.arange(tokens.shape[1], device=tokens.device)
    return (t >= 1) & (t < lengths[:, None])


MODELS: Registry[type[LanguageModel]] = Registry("model")

M = TypeVar("M", bound=type[LanguageModel])


def model(
    name: str, *, family: str, seed: str, source: str, ids: tuple[str, ...] = ()
) -> Callable[[M], M]:
    """Register a model class, and its default config as a row of the zoo."""

    def register(cls: M) -> M:
        MODELS(name)(cls)
        summary = (cls.__doc__ or "").strip().splitlines()[0]
        ROWS.add(
            name,
            Row(
                name=name, ids=ids, family=family, score=cls.score.value, seed=seed,
                source=source, summary=summary, model=name,
            ),
        )  # fmt: skip
        return cls

    return register


def initialise(model: nn.Module, seed: int) -> None:
    """Draw every module's parameters from its own stream, keyed by (seed, module name).

    The global generator is left as it was found.
    """
    with torch.random.fork_rng(devices=[]):
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                torch.manual_seed(stream(seed, name))
                reset()


def stream(seed: int, *names: object) -> int:
    """A 63-bit seed for the named purpose; distinct names give independent streams."""
    import hashlib

    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
