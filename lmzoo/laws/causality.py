r"""Measure whether a model is a normalised causal density.

With ℓ_t = log P(s_t | s_<t) from `log_prob`, the audit takes the largest value of each:

    future   | ℓ_t(s) − ℓ_t(s') |              s' differs from s in one token after t
    itself   | Σ_v exp ℓ_t(.., s_{t-1}, v, s_{t+1}, ..) − 1 |
    total    | Σ_s exp Σ_t ℓ_t − 1 |           over every sequence of the task
    pads     | ℓ_t(s) − ℓ_t(s') |              s' differs from s in the padding
    mates    | ℓ_t(s) − ℓ_t(s') |              the other sequences of the batch differ

`itself` detects a score that depends on its own token, and scores that are not normalised. A model
that does not score from left to right has no causal token scores and is checked for `total`
instead of `future` and `itself`. A bound or a reconstruction is checked for `pads` and `mates`
only.

A weight that starts at zero can hide a leak, so noise is added to every weight first. Scores are
computed in double precision, where rounding errors are about 1e-13.
"""

import functools
import itertools
import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.config import from_dict, to_dict
from lmzoo.contract import MODELS, START, LanguageModel, Score, Task
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm
from lmzoo.functional.seeding import derive_seed

TASK = Task(vocab=4, length=5, source_vocab=4, source_length=3)
"""Small enough to enumerate all 4⁴ sequences."""

TOLERANCE = 1e-6
"""Far above rounding errors in double precision and far below the effect of any leak."""

FAULT_MESSAGES = {
    "future": "a score changes by {:.2g} nats when a later token changes",
    "itself": "the sum of the probabilities of all tokens at one position differs from 1 by {:.2g}",
    "total": "the sum of the probabilities of all sequences differs from 1 by {:.2g}",
    "pads": "a score changes by {:.2g} nats when the padding changes",
    "mates": "a score changes by {:.2g} nats when the other sequences of the batch change",
}


@dataclass(frozen=True)
class Audit:
    """The largest deviation in each check; None where the check does not apply."""

    future: float | None
    itself: float | None
    total: float | None
    pads: float
    mates: float

    @property
    def faults(self) -> tuple[str, ...]:
        """A message for each deviation above `TOLERANCE`; empty for a valid model."""
        deviations = asdict(self)
        return tuple(
            message.format(deviations[name])
            for name, message in FAULT_MESSAGES.items()
            if deviations[name] is not None and not deviations[name] <= TOLERANCE
        )


def audit(config: Any, seed: int = 0) -> Audit:
    """Build the configuration for a tiny task, add noise to its weights, and check it."""
    model = zoo.build(config, TASK, seed).double().eval()
    tokens, lengths = _random_batch(seed, rows=6)
    if model.closed_form:
        model.fit_closed_form(tokens, lengths)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(derive_seed(seed, "disturbed"))
        for weight in model.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    is_density = model.score in (Score.EXACT, Score.CONDITIONAL)
    checks = _Checks(model, tokens, lengths)
    return Audit(
        future=checks.future() if is_density and model.causal else None,
        itself=checks.itself() if is_density and model.causal else None,
        total=None if model.causal or not is_density else checks.total(),
        pads=checks.pads(),
        mates=checks.mates(seed),
    )


def audit_verdict(config: Any) -> str:
    """Return the faults of a configuration, '' if there are none. Cached per process."""
    return _cached_verdict(json.dumps(MODELS.dump(config), sort_keys=True))


@functools.cache
def _cached_verdict(config: str) -> str:
    return "; ".join(audit(MODELS.parse(json.loads(config))).faults)


def with_published_norm(config: Any) -> Any | None:
    """Return the configuration with the input normalisation of S0, which leaks the future.

    S0 divides inputs by their standard deviation over time. Return None if the configuration has
    no such option, or if its model does not leak with it.
    """
    if not hasattr(config, "norm"):
        return None
    try:
        leaking = from_dict(type(config), {**to_dict(config), "norm": Norm.TIME_STD})
    except UserError:
        return None
    return leaking if zoo.build(leaking, TASK).leaks else None


class _Checks:
    """Compare the scores of changed copies of a batch, in evaluation and in training mode.

    Compared scores come from batches of the same shape, so that they have the same noise.
    """

    def __init__(self, model: LanguageModel, tokens: Tensor, lengths: Tensor) -> None:
        self.model, self.tokens, self.lengths = model, tokens, lengths
        self.full = torch.full_like(lengths, tokens.shape[1])

    def future(self) -> float:
        """Replace each token by every other token and compare the scores before it."""
        changes = list(itertools.product(range(2, TASK.length), range(TASK.vocab)))
        changed = torch.cat([_replace_token(self.tokens, u, v) for u, v in changes])
        full, worst = self.full.repeat(len(changes)), 0.0
        for training in (False, True):
            before = self._scores(self.tokens.repeat(len(changes), 1), full, training=training)
            after = self._scores(changed, full, training=training)
            pairs = zip(after.chunk(len(changes)), before.chunk(len(changes)), strict=True)
            for (u, _), (new, old) in zip(changes, pairs, strict=True):
                worst = max(worst, _max_deviation(new[:, :u], old[:, :u]))
        return worst

    def itself(self) -> float:
        """Sum the probabilities of all tokens at each position."""
        positions, worst = range(1, TASK.length), 0.0
        full = self.full.repeat(len(positions))
        for training in (False, True):
            total = torch.zeros(len(positions), len(self.tokens), dtype=torch.float64)
            for v in range(TASK.vocab):  # one call per token, so that all have the same noise
                changed = torch.cat([_replace_token(self.tokens, u, v) for u in positions])
                scores = self._scores(changed, full, training=training).unflatten(0, total.shape)
                total += torch.stack([scores[i, :, u] for i, u in enumerate(positions)]).exp()
            worst = max(worst, _max_deviation(total, torch.ones_like(total)))
        return worst

    def total(self) -> float:
        """Sum the probabilities of all sequences."""
        rest = torch.cartesian_prod(*[torch.arange(TASK.vocab)] * (TASK.length - 1))
        sequences = torch.nn.functional.pad(rest, (1, 0), value=START)
        lengths = torch.full((len(sequences),), TASK.length)
        scores = self._scores(sequences, lengths, training=False)
        return _max_deviation(scores.sum(1).exp().sum(), torch.ones(()))

    def pads(self) -> float:
        """Replace the padding by every token."""
        padding = torch.arange(TASK.length) >= self.lengths[:, None]
        filled = torch.cat([self.tokens.masked_fill(padding, v) for v in range(TASK.vocab)])
        before, lengths = self.tokens.repeat(TASK.vocab, 1), self.lengths.repeat(TASK.vocab)
        return max(
            _max_deviation(
                self._scores(filled, lengths, training=training),
                self._scores(before, lengths, training=training),
            )
            for training in (False, True)
        )

    def mates(self, seed: int) -> float:
        """Keep the first sequence and change all other sequences."""
        tokens, lengths = _random_batch(seed + 1, rows=len(self.tokens))
        tokens[0], lengths[0] = self.tokens[0], self.lengths[0]
        worst = 0.0
        for training in (False, True):
            before = self._scores(self.tokens, self.lengths, training=training)
            after = self._scores(tokens, lengths, training=training)
            worst = max(worst, _max_deviation(after[:1], before[:1]))
        return worst

    def _scores(self, tokens: Tensor, lengths: Tensor, *, training: bool) -> Tensor:
        """Return `log_prob` with noise of a fixed seed and the same source for all sequences."""
        rows = len(tokens)
        source = torch.arange(TASK.source_length).expand(rows, -1) % TASK.source_vocab
        sources = (
            (source, torch.full((rows,), TASK.source_length)) if self.model.conditional else ()
        )
        self.model.train(training)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(0)
            return self.model.log_prob(tokens, lengths, *sources)


def _random_batch(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return random sequences; the first has the maximal length, the second the minimal."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "audit"))
    tokens = torch.randint(TASK.vocab, (rows, TASK.length), generator=generator)
    tokens[:, 0] = START
    lengths = torch.randint(2, TASK.length + 1, (rows,), generator=generator)
    lengths[0], lengths[1] = TASK.length, 2
    return tokens, lengths


def _replace_token(tokens: Tensor, position: int, token: int) -> Tensor:
    changed = tokens.clone()
    changed[:, position] = token
    return changed


def _max_deviation(actual: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference; NaN counts as infinite, equal infinities as 0."""
    deviation = (actual - expected).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    return float(torch.where(actual == expected, 0.0, deviation).max())
