r"""Is a model the normalised causal density it claims to be? Measured, not declared.

With ℓ_t = log P(s_t | s_<t) as `log_prob` returns it, the largest of each:

    future   | ℓ_t(s) − ℓ_t(s') |              s' differs from s in one token after t
    itself   | Σ_v exp ℓ_t(.., s_{t-1}, v, s_{t+1}, ..) − 1 |
    total    | Σ_s exp Σ_t ℓ_t − 1 |           over every sequence of the task
    pads     | ℓ_t(s) − ℓ_t(s') |              s' differs from s beyond its length
    mates    | ℓ_t(s) − ℓ_t(s') |              s' stands in a batch of other sequences

`itself` finds a score that reads its own token, and one that is no probability. A model
that scores sequences from another end makes no claim token by token and answers for
`total` instead; a bound or a reconstruction answers for `pads` and `mates` only.

A path may be closed by a weight that starts at zero, so every weight is disturbed first.
Scores are taken in double precision, where honest ones differ by rounding, ~1e-13.

S0 as audited in zoo.md 1.6.
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
from lmzoo.contract import MODELS, START, LanguageModel, Score, Task, stream
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm

TASK = Task(vocab=4, length=5, source_vocab=4, source_length=3)
"""Where every sequence can be listed: 4⁴ of them."""

TOLERANCE = 1e-6
"""Far above rounding in double precision, far below what any leak is worth."""

FAULTS = {
    "future": "a score changes by {:.2g} nats with a later token",
    "itself": "the probabilities of all tokens at one place miss 1 by {:.2g}",
    "total": "the probabilities of all sequences miss 1 by {:.2g}",
    "pads": "a score changes by {:.2g} nats with what stands beyond the sequence",
    "mates": "a score changes by {:.2g} nats with the other sequences of the batch",
}


@dataclass(frozen=True)
class Audit:
    """The largest deviation found by each question; None where it does not apply."""

    future: float | None
    itself: float | None
    total: float | None
    pads: float
    mates: float

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, a phrase each; nothing for an honest model."""
        found = asdict(self)
        return tuple(
            phrase.format(found[name])
            for name, phrase in FAULTS.items()
            if found[name] is not None and not found[name] <= TOLERANCE
        )


def audit(config: Any, seed: int = 0) -> Audit:
    """Build the configuration at a tiny task, disturb its weights, and question it."""
    model = zoo.build(config, TASK, seed).double().eval()
    tokens, lengths = _random(seed, rows=6)
    if model.closed_form:
        model.fit_closed_form(tokens, lengths)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(stream(seed, "disturbed"))
        for weight in model.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    claims = model.score in (Score.EXACT, Score.CONDITIONAL)
    ask = _Questions(model, tokens, lengths)
    return Audit(
        future=ask.future() if claims and model.causal else None,
        itself=ask.itself() if claims and model.causal else None,
        total=None if model.causal or not claims else ask.total(),
        pads=ask.pads(),
        mates=ask.mates(seed),
    )


def audit_verdict(config: Any) -> str:
    """What the audit finds wrong with a configuration, '' if nothing; asked once a process."""
    return _unsound(json.dumps(MODELS.write(config), sort_keys=True))


@functools.cache
def _unsound(config: str) -> str:
    return "; ".join(audit(MODELS.read(json.loads(config))).faults)


def published(config: Any) -> Any | None:
    """The configuration as S0 ran it, its inputs divided by their spread over time.

    None where it has no such option, or reads nothing of its inputs.
    """
    if not hasattr(config, "norm"):
        return None
    try:
        leaking = from_dict(type(config), {**to_dict(config), "norm": Norm.TIME_STD})
    except UserError:
        return None
    return leaking if zoo.build(leaking, TASK).leaks else None


class _Questions:
    """The model's scores of changed copies of one batch, in evaluation and in training.

    What is compared is asked for in batches of one shape, so that noise falls alike.
    """

    def __init__(self, model: LanguageModel, tokens: Tensor, lengths: Tensor) -> None:
        self.model, self.tokens, self.lengths = model, tokens, lengths
        self.full = torch.full_like(lengths, tokens.shape[1])

    def future(self) -> float:
        """Change each token in turn to every other and look at the scores before it."""
        changes = list(itertools.product(range(2, TASK.length), range(TASK.vocab)))
        changed = torch.cat([_with(self.tokens, u, v) for u, v in changes])
        full, worst = self.full.repeat(len(changes)), 0.0
        for training in (False, True):
            before = self._scores(self.tokens.repeat(len(changes), 1), full, training=training)
            after = self._scores(changed, full, training=training)
            pairs = zip(after.chunk(len(changes)), before.chunk(len(changes)), strict=True)
            for (u, _), (one, other) in zip(changes, pairs, strict=True):
                worst = max(worst, _apart(one[:, :u], other[:, :u]))
        return worst

    def itself(self) -> float:
        """Put every token at one place and add up the probabilities that it gets there."""
        places, worst = range(1, TASK.length), 0.0
        full = self.full.repeat(len(places))
        for training in (False, True):
            total = torch.zeros(len(places), len(self.tokens), dtype=torch.float64)
            for v in range(TASK.vocab):  # each in a call of its own: all meet the same noise
                put = torch.cat([_with(self.tokens, u, v) for u in places])
                scores = self._scores(put, full, training=training).unflatten(0, total.shape)
                total += torch.stack([scores[i, :, u] for i, u in enumerate(places)]).exp()
            worst = max(worst, _apart(total, torch.ones_like(total)))
        return worst

    def total(self) -> float:
        """Add up the probabilities of all sequences."""
        rest = torch.cartesian_prod(*[torch.arange(TASK.vocab)] * (TASK.length - 1))
        every = torch.nn.functional.pad(rest, (1, 0), value=START)
        lengths = torch.full((len(every),), TASK.length)
        scores = self._scores(every, lengths, training=False)
        return _apart(scores.sum(1).exp().sum(), torch.ones(()))

    def pads(self) -> float:
        """Fill what stands beyond each sequence with every token."""
        beyond = torch.arange(TASK.length) >= self.lengths[:, None]
        filled = torch.cat([self.tokens.masked_fill(beyond, v) for v in range(TASK.vocab)])
        before, lengths = self.tokens.repeat(TASK.vocab, 1), self.lengths.repeat(TASK.vocab)
        return max(
            _apart(
                self._scores(filled, lengths, training=training),
                self._scores(before, lengths, training=training),
            )
            for training in (False, True)
        )

    def mates(self, seed: int) -> float:
        """Keep the first sequence and change all others."""
        tokens, lengths = _random(seed + 1, rows=len(self.tokens))
        tokens[0], lengths[0] = self.tokens[0], self.lengths[0]
        worst = 0.0
        for training in (False, True):
            before = self._scores(self.tokens, self.lengths, training=training)
            after = self._scores(tokens, lengths, training=training)
            worst = max(worst, _apart(after[:1], before[:1]))
        return worst

    def _scores(self, tokens: Tensor, lengths: Tensor, *, training: bool) -> Tensor:
        """`log_prob` with all noise from one fixed stream, and one source for every row."""
        rows = len(tokens)
        source = torch.arange(TASK.source_length).expand(rows, -1) % TASK.source_vocab
        given = (source, torch.full((rows,), TASK.source_length)) if self.model.conditional else ()
        self.model.train(training)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(0)
            return self.model.log_prob(tokens, lengths, *given)


def _random(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    """Random sequences, the first as long as may be, the second as short."""
    generator = torch.Generator().manual_seed(stream(seed, "audit"))
    tokens = torch.randint(TASK.vocab, (rows, TASK.length), generator=generator)
    tokens[:, 0] = START
    lengths = torch.randint(2, TASK.length + 1, (rows,), generator=generator)
    lengths[0], lengths[1] = TASK.length, 2
    return tokens, lengths


def _with(tokens: Tensor, place: int, token: int) -> Tensor:
    changed = tokens.clone()
    changed[:, place] = token
    return changed


def _apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference; infinite where one is not a number or they are not alike."""
    apart = (found - expected).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    return float(torch.where(found == expected, 0.0, apart).max())
