"""The contract of a language model, and the meaning of its score.

A model assigns to every scored token the natural logarithm of a probability:

    log_prob(tokens, lengths)[b, t] = log P(s_t | s_<t)      0 where not scored

Position 0 holds `<start>` and is never scored, and neither is a position at or beyond the length. A
subclass implements `score_tokens` and `next_log_prob`; the base class masks what is not scored. A
`conditional` model also receives the `sources` of its sequences: token ids (B, S) and lengths (B,).
`tests/test_contract.py` tests the laws of this contract for every registered model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.registry import ROWS, Registry, Row
from lmzoo.functional.token_scores import mask_scores
from lmzoo.types import END as END
from lmzoo.types import PAD as PAD
from lmzoo.types import START as START
from lmzoo.types import UNKNOWN as UNKNOWN
from lmzoo.types import (
    Embeddings,
    Lengths,
    NextScores,
    Prefix,
    StepTokens,
    Tokens,
    TokenScores,
    needs_source_message,
)
from lmzoo.types import Task as Task

DecodingState = Any
"""The state between two decoding steps: nested tuples.

The first axis of every tensor is the batch; other values are the same for all sequences.
"""


class Score(StrEnum):
    """The kind of number that `log_prob` returns; tables rank models within a kind only."""

    EXACT = "exact"  # a normalised causal log-likelihood
    LOWER_BOUND = "bound"  # in expectation at most the log-likelihood
    RECONSTRUCTION = "reconstruction"  # the scored sequence was also an input
    CONDITIONAL = "conditional"  # a log-likelihood given another sequence
    OBJECTIVE = "objective"  # a training objective that is no probability of the sequence


class LanguageModel(nn.Module, ABC):
    """A normalised causal density over token sequences, unless `score` says otherwise.

    Every module with parameters has a method `reset_parameters()`, so that initial weights depend
    only on the seed and the module's name (`lmzoo.functional.parameters.initialise`).
    """

    name: ClassVar[str]
    Config: ClassVar[type]
    score: ClassVar[Score] = Score.EXACT
    causal: ClassVar[bool] = True
    """True if a score depends on earlier tokens only; otherwise only totals have a meaning."""
    closed_form: ClassVar[bool] = False
    """True if `fit_closed_form` trains the model, without gradients."""
    conditional: ClassVar[bool] = False
    """True if `score_tokens` and `next_log_prob` also take source tokens and source lengths."""
    output_scale: float = 1.0
    """A factor of the logits of a model with a width (`lmzoo/train/optimisers.py`)."""

    def __init__(self, config: Any, task: Task):
        super().__init__()
        self.config = config
        self.task = task
        # Here, and not in the middle of a training.
        if self.conditional and not task.source_vocab:
            raise UserError(needs_source_message(self.name))

    def require_length(self, count: int):
        """Raise a UserError if `count` tokens are more than the task has."""
        # Positions, and learned states of them, end there.
        if count > self.task.length:
            raise UserError(
                f"{self.name} is built for {self.task.length} tokens, got {count}; "
                "use shorter sequences or a longer task.length"
            )

    def scaled(self, table: Embeddings) -> Embeddings:
        """Return an output table times `output_scale`."""
        if self.output_scale == 1:  # no copy of a large table
            return table
        return table * self.output_scale

    @abstractmethod
    def score_tokens(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B T-1"]:
        """Return log P(s_t | s_<t) for t = 1..T-1, in nats; values at pads are ignored."""

    @abstractmethod
    def next_log_prob(self, prefix: Prefix) -> NextScores:
        """Return log P(v | prefix) for every token v; the prefix starts with `<start>`."""

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        """Return the decoding state of `batch` sequences before `<start>` is read."""
        return (None,) + self.conditioning_inputs(sources)

    def begin_samples(
        self, batch: int, *sources: Tensor, generator: torch.Generator | None = None
    ) -> DecodingState:
        """Return the state from which samples are drawn; a sentence latent is drawn for each."""
        return self.begin(batch, *sources)

    def advance(self, state: DecodingState, token: StepTokens) -> tuple[NextScores, DecodingState]:
        """Read one token of each sequence.

        This default keeps the last `context_length` tokens, or all, and computes from them again. A
        model with a recurrent state or a cache overrides `begin` and `advance`. `state` is not
        modified, so two continuations can share it.

        Returns:
            `next_log_prob` of the tokens read so far, and the new state.
        """
        read = state[0]
        sources = state[1:]
        prefix = token[:, None]
        if read is not None:
            prefix = torch.cat([read, prefix], dim=1)
        kept = prefix
        if self.context_length is not None:
            first = max(0, prefix.shape[1] - self.context_length)
            kept = prefix[:, first:]
        return self.next_log_prob(prefix, *sources), (kept,) + sources

    def forward(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        """Return `log_prob`; DDP, `torch.compile` and hooks act on this call."""
        return self.log_prob(tokens, lengths, *sources)

    def log_prob(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        """Return log P(s_t | s_<t, source) in nats, and 0 where a position is not scored.

        Args:
            tokens: Token ids (B, T); position 0 holds `<start>`.
            lengths: Number of tokens of each sequence (B,), `<start>` included.
            *sources: Source tokens (B, S) and source lengths (B,). Models that are not conditional
                ignore them.

        Raises:
            UserError: The model is conditional and `sources` is missing.
        """
        # Other models may run on a corpus of pairs, too.
        given = self.conditioning_inputs(sources)
        if tokens.shape[1] == 1:  # `<start>` alone has no scored token
            return torch.zeros_like(tokens, dtype=torch.get_default_dtype())
        scores = self.score_tokens(tokens, lengths, *given)
        # Only rounding takes a log-probability above 0; an objective has no upper bound.
        return mask_scores(scores, lengths, clamp=self.score is not Score.OBJECTIVE)

    def conditioning_inputs(self, sources: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the conditioning inputs this model uses: `sources` if `conditional`, else none.

        Other models also run on a corpus with sources, as a baseline without the sources. A
        `UserError` says that the model is conditional and `sources` is empty.
        """
        if not self.conditional:
            return ()
        if not sources:
            raise UserError(needs_source_message(self.name))
        return sources

    def most_probable(
        self, tokens: Tokens, lengths: Lengths, *sources: Tensor
    ) -> Int[Tensor, "B T-1"]:
        """Return argmax_v log P(v | s_<t) for t = 1..T-1; values at pads are ignored.

        This default decodes token by token. A model that has all distributions at once overrides
        it.
        """
        state = self.begin(len(tokens), *self.conditioning_inputs(sources))
        best = []
        for token in tokens[:, :-1].unbind(1):
            scores, state = self.advance(state, token)
            best.append(scores.argmax(-1))
        return torch.stack(best, dim=1)

    @property
    def generates(self) -> bool:
        """Whether `next_log_prob` is a distribution that depends on earlier tokens only."""
        if self.leaks or self.score is Score.OBJECTIVE:
            return False
        return self.causal

    def require_next_token(self):
        """Raise a UserError unless the model gives a distribution of the next token."""
        if not self.causal or self.leaks or self.score not in (Score.EXACT, Score.CONDITIONAL):
            raise UserError(
                f"{self.name} gives no distribution of the next token, so a task that scores some "
                "tokens cannot test it; use a causal model with an exact score"
            )

    def objective(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        """Return the values per token whose sum training maximises; by default `log_prob`."""
        return self.log_prob(tokens, lengths, *sources)

    latent: str = ""
    """The kind of the discrete latent ("component", "parent", ...); '' if there is none.

    "A or B" means that value 0 is an A and all other values are Bs. A parent or a source is a
    position before t, counted from `<start>`: K = T-1 positions, times the number of arc types.
    """

    def posterior(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B K T-1"]:
        """Return P(z_t = k | s_t, s_<t) for t = 1..T-1; only for models with a `latent`.

        The values are probabilities, not logarithms. They sum to 1 over k, and are meaningless at
        pads. Two models return an approximation. Slot models return a mean-field P(z_t | s_<t). The
        product of experts returns the mean of its experts' posteriors, each over its own part of K.
        """
        raise NotImplementedError(f"{self.name} has no discrete latent")

    def prior(self) -> Float[Tensor, "..."] | None:
        """Return log P(z) before any token is read; None if the model has no such prior.

        The exponentials sum to 1 over k. The shape is (K,) if the prior does not depend on the
        position, (K, T-1) if it does (parents; the first slot of a chain), (N, K, T-1) for N slots.
        """
        return None

    def fit_closed_form(
        self, tokens: Tokens, lengths: Lengths, valid_loss: Callable[[], float] | None = None
    ):
        """Estimate the model from all training sequences at once (`closed_form` models).

        `valid_loss` returns the present validation loss, by which a model may choose a setting.
        """
        raise NotImplementedError(f"{self.name} is trained by gradients")

    def report(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> dict[str, float]:
        """Return further metrics of a trained model, by name; {} for most models."""
        return {}

    @property
    def leaks(self) -> str:
        """The reason why this configuration depends on future tokens; '' if it does not."""
        return ""

    context_length: int | None = None
    """Number of last tokens that the next token depends on; None for the whole prefix."""

    @property
    def state_size(self) -> int | None:
        """Numbers in the state of one sequence between steps; None if it grows with the prefix.

        An n-gram carries tokens, a recurrent model floats.
        """
        return self.context_length

    @property
    def unused_parameters(self) -> int:
        """Number of parameters that no score of the task's sequences depends on.

        Each module counts its own in an attribute `unused`.
        """
        return sum(getattr(module, "unused", 0) for module in self.modules())


MODELS: Registry[type[LanguageModel]] = Registry("model")

M = TypeVar("M", bound=type[LanguageModel])


def _own_config(cls: type[LanguageModel]) -> type:
    """Return a copy of an inherited Config, because the type of a config says whose it is."""
    names = {
        "__module__": cls.__module__,
        "__qualname__": f"{cls.__qualname__}.Config",
        "__doc__": cls.Config.__doc__,
    }
    return config(type("Config", (cls.Config,), names))


def model(
    name: str, *, family: str, source: str, document: str = "", aliases: tuple[str, ...] = ()
) -> Callable[[M], M]:
    """Register a model class, and its default config as a row of the zoo; see `registry.Row`."""

    def register(cls: M) -> M:
        # A config names its model by its type.
        if "Config" not in vars(cls):
            cls.Config = _own_config(cls)
        MODELS(name)(cls)
        summary, _, _ = (cls.__doc__ or "").strip().partition("\n")
        row = Row(
            name=name,
            aliases=aliases,
            family=family,
            score=cls.score.value,
            document=document,
            source=source,
            summary=summary,
            model=name,
        )
        # A class that is defined again, as in a notebook, replaces its own row, and no other one.
        ROWS.add(name, row, replace=name in ROWS and ROWS[name].model == name)
        return cls

    return register
