r"""Probes: measure how far scores are from those of a normalised causal density.

With ℓ_t = log P(s_t | s_<t), each probe returns the largest value of its deviation:

    again    | ℓ_t(s) − ℓ_t(s) |               the same call, twice
    future   | ℓ_t(s) − ℓ_t(s') |              s' differs from s at u > t and after it
    itself   | Σ_v exp ℓ_u(s_<u, v, ..) − 1 |  every token v at u, other tokens after it
    total    | Σ_s exp Σ_t ℓ_t − 1 |           every sequence
    pads     | ℓ_t(s) − ℓ_t(s') |              s' differs from s in its padding
    mates    | ℓ_t(s) − ℓ_t(s') |              the other sequences of the batch differ
    steps    | ℓ_t(s) − ℓ'_t(s) |              ℓ' is computed from a prefix

`future` detects a score that depends on a later token. `itself` detects a score that depends on its
own token, and scores that are not normalised. The positions u are those of `cut_positions`.

The probes see a `Subject`, which returns either the scores ℓ_t of the given tokens, (B, T), or
log-probabilities of tokens after each position and the log of their sum, (B, T, C). In both cases
the entries before u depend on the tokens before u only.
"""

import copy
import math
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmzoo.base.seeds import derive_seed
from lmzoo.contract import LanguageModel, Score, Task
from lmzoo.functional.copied import trained_weights
from lmzoo.functional.sequence import full_lengths
from lmzoo.functional.token_scores import length_mask, of_tokens
from lmzoo.laws.tiny import batch, every_sequence, log_prob, new_model, next_log_prob

TOLERANCE = 1e-6
"""In float64: far above rounding errors and far below the effect of a leak."""
LENGTH = 65
"""Length of the sequences where none is given; 64 inputs have chunks of 2 to 64."""
DISTURBANCE = 0.3
"""Standard deviation of the noise that is added to a weight; smaller for large matrices."""
ATTENDED = 2**21
"""Largest rows × positions² of one call; it bounds the memory of attention."""
OUTPUTS = 2**24
"""Largest number of log-probabilities of one call."""
SUMMED = 2**22
"""Largest number of tokens read for the sums over a vocabulary; there are fewer sums if need be."""
SAMPLED = 4096
"""Of a larger vocabulary, the sum over this number of tokens must not exceed 1."""
ROUNDS = 8
"""Most rounds of `future` with other positions and tokens; one for the zoo's three tokens."""
SECONDS = 5.0
"""Processor time of `sought_leaks` at a length; other programs do not change what is sought."""
ROWS = 6
"""Sequences in the batches of `pads`, `mates` and `steps`."""


class Probe(NamedTuple):
    """What a probe is called in a table, and the fault that it detects."""

    heading: str
    fault: str
    slack: float = 1.0


FILE = Path(__file__).with_name("probes.toml")
TABLE = tomllib.loads(FILE.read_text("utf-8"))
PROBES = {name: Probe(**own) for name, own in TABLE.items()}
"""The probes, by the names of their methods."""


Outputs = Callable[..., Tensor]
"""(tokens, lengths, *, training, noise) -> scores (B, T), or log-probabilities and the log of the
sum of all (B, T, C); `noise` is the seed of dropout and sampling."""


@dataclass(frozen=True)
class Subject:
    """Scores of token sequences, as the probes see them."""

    vocab: int
    length: int
    """Length T of the probed sequences."""
    outputs: Outputs
    probes: tuple[str, ...]
    """Names of the probes that apply."""
    trains: bool = True
    """Whether there is a training mode."""
    other_forms: Callable[[Tensor, Tensor, list[int]], Iterator[Tensor]] = lambda *_: iter(())
    """(tokens (B, T), outputs, positions) -> the same outputs, computed in other ways."""
    tolerance: float = TOLERANCE
    notes: tuple[str, ...] = ()


class Probes:
    """The probes of a subject, in evaluation and in training mode.

    Compared outputs come from batches of the same shape, so that they have the same noise.
    """

    def __init__(self, subject: Subject, seed: int = 0):
        self.subject = subject
        self.seed = seed
        self.cuts = cut_positions(subject.length)
        task = Task(vocab=subject.vocab, length=subject.length)
        rows = max(ROWS, len(self.cuts))
        self.tokens, self.lengths = batch(task, rows, seed)
        # Kept: `future` and `itself` replace the same tokens.
        self._continued = cache(self._replace)
        self.tokens[1::2] %= 5  # few tokens, so that a long sequence repeats its beginning

    def again(self) -> float:
        """Call the model twice."""
        worst = 0.0
        for training in {False, self.subject.trains}:
            first = self._two_rows(training=training)
            second = self._two_rows(training=training)
            worst = max(worst, _deviation(second, first))
        return worst

    def _two_rows(self, *, training: bool, noise: int = 0) -> Tensor:
        """Return the outputs of two sequences: what differs between calls shows in them."""
        tokens = self.tokens[:2]
        lengths = self.lengths[:2]
        return self.subject.outputs(tokens, lengths, training=training, noise=noise)

    def future(self) -> float:
        """Replace all tokens from a position on, and compare the outputs before it."""
        worst = 0.0
        for training in self.modes:
            for cuts, (before, after) in self._pairs(training=training):
                worst = max(worst, _deviation_before(cuts, after, before))
        return worst

    def _pairs(self, *, training: bool) -> Iterator[tuple[list[int], list[Tensor]]]:
        """Yield positions, and the outputs of two batches that differ from these positions on."""
        first = self._continued(0, training)
        for token in range(1, min(self.subject.vocab, 3)):
            yield self.cuts, [first, self._continued(token, training)]
        if self.subject.length > 2:
            yield from self._drawn_pairs(training=training)

    def _drawn_pairs(self, *, training: bool) -> Iterator[tuple[list[int], list[Tensor]]]:
        """Yield such pairs for drawn positions.

        The last token that both keep, and the tokens in which they differ first, go through the
        vocabulary: a leak may show for one token only.
        """
        V = self.subject.vocab
        T = self.subject.length
        task = Task(vocab=V, length=T)
        count = len(self.cuts)
        generator = torch.Generator().manual_seed(self.seed)
        places = torch.randperm(T - 2, generator=generator)
        # The special tokens first, from `<end>` down: a leak often shows at them.
        special = torch.arange(8, -2, -1) % V
        drawn = torch.randperm(V, generator=generator)
        tokens = torch.cat([special, drawn])
        wanted = max(len(tokens), T)
        rounds = math.ceil(wanted / count)
        # Few tokens: the pairs before tried nearly all of them.
        most = ROUNDS
        if V <= 3:
            most = 1
        pairs = torch.arange(min(most, rounds) * count)
        for numbers in pairs.split(count):
            seed = int(numbers[0])
            known, lengths = batch(task, count, seed)
            one, _ = batch(task, count, seed + 1)
            other, _ = batch(task, count, seed + 2)
            cuts = places[numbers % (T - 2)] + 2
            rows = numbers % count
            number = numbers % len(tokens)
            known[rows, cuts - 1] = tokens[number]
            one[rows, cuts] = tokens.roll(-1)[number]
            other[rows, cuts] = tokens.roll(-2)[number]
            kept = torch.arange(T) < cuts[:, None]
            # The changed token must be real: a mask hides pads.
            longer = lengths.maximum(cuts + 1)
            changed = [known.where(kept, later) for later in (one, other)]
            pair = [self._outputs(later, longer, training=training) for later in changed]
            yield cuts.tolist(), pair

    def itself(self) -> float:
        """Sum the probabilities of all tokens at each position."""
        return max(map(_deviation_from_1, self._totals()))

    def total(self) -> float:
        """Sum the probabilities of all sequences of the length of the subject, in evaluation."""
        task = Task(vocab=self.subject.vocab, length=self.subject.length)
        # In double: of thousands of sequences each has a small probability.
        tokens, lengths = every_sequence(task)
        scores = self._outputs(tokens, lengths)
        log_probs = scores.double().sum(1)
        return _deviation_from_1(log_probs.exp().sum())

    def pads(self) -> float:
        """Replace the padding; without noise, also shorten it."""
        T = self.subject.length
        tokens = self.tokens[:ROWS]
        lengths = self.lengths[:ROWS]
        real = length_mask(lengths, T)
        worst = 0.0
        for training in self.modes:
            before = self._outputs(tokens, lengths, training=training)
            # Pads of zeros, and pads that are other tokens.
            zeros = torch.zeros_like(tokens)
            for pads in (zeros, self._random(len(tokens), seed=2)):
                filled = tokens.where(real, pads)
                after = self._outputs(filled, lengths, training=training)
                worst = max(worst, _deviation(after[real], before[real]))
        if self.is_deterministic(training=False):
            before = self._outputs(tokens, lengths)
            # A batch of shorter sequences: its padding ends earlier.
            widths = {T // 3 + 2, T // 2 + 1, T - 1}
            for width in widths - {1, T}:
                fits = lengths <= width
                shown = real[fits, :width]
                after = self._outputs(tokens[fits, :width], lengths[fits])
                expected = before[fits, :width][shown]
                worst = max(worst, _deviation(after[shown], expected))
        return worst

    def mates(self) -> float:
        """Change the other sequences of a batch; without noise, also their order and number."""
        tokens = self.tokens[:ROWS]
        lengths = self.lengths[:ROWS]
        others = self._random(ROWS, seed=3)
        # The first row stays; all others change.
        worst = 0.0
        others[0] = tokens[0]
        for training in self.modes:
            # Other lengths may need another number of random numbers.
            if self.is_deterministic(training=training):
                other_lengths = lengths.roll(1)
            else:
                other_lengths = lengths.clone()
            other_lengths[0] = lengths[0]
            outputs = partial(self._outputs, training=training, whole=True)
            before = outputs(tokens, lengths)
            after = outputs(others, other_lengths)
            worst = max(worst, _deviation(after[0], before[0]))
        if self.is_deterministic(training=False):
            order = torch.arange(ROWS).roll(2)
            before = self._outputs(tokens, lengths, whole=True)
            for rows in (order, order[:1]):
                own_lengths = lengths[rows]
                after = self._outputs(tokens[rows], own_lengths, whole=True)
                # Pads are not compared: their scores count for nothing.
                real = length_mask(own_lengths, tokens.shape[1])
                expected = before[rows][real]
                worst = max(worst, _deviation(after[real], expected))
        return worst

    def steps(self) -> float:
        """Compute the outputs in the other ways that the subject offers."""
        tokens = self.tokens[:2]
        # Full rows: a computation step by step knows no end.
        once = self._outputs(tokens, full_lengths(tokens))
        worst = 0.0
        for other in self.subject.other_forms(tokens, once, self.cuts):
            worst = max(worst, _deviation(other, once))
        return worst

    @cached_property
    def modes(self) -> tuple[bool, ...]:
        """The modes to probe: training mode only if its outputs differ from those in evaluation."""
        if not self.subject.trains:
            return (False,)
        evaluated = self._two_rows(training=False)
        trained = self._two_rows(training=True)
        if trained.equal(evaluated):
            return (False,)
        return (False, True)

    def is_deterministic(self, *, training: bool) -> bool:
        """Whether the outputs do not depend on the noise."""
        first = self._two_rows(training=training)
        second = self._two_rows(training=training, noise=1)
        return first.equal(second)

    def _replace(self, token: int, training: bool, step: int = 1) -> Tensor:  # noqa: FBT001
        """Return the outputs with this token at position cuts[i] of row i, and others after it.

        Only every `step`-th row is computed.
        """
        count = len(self.cuts)
        cuts = torch.tensor(self.cuts)[:, None]
        t = torch.arange(self.subject.length)
        later = self._random(count, seed=4 + token)
        known = self.tokens[:count]
        tokens = known.where(t < cuts, later)
        tokens = tokens.masked_fill(t == cuts, token)
        chosen = tokens[::step]
        lengths = full_lengths(chosen)
        return self._outputs(chosen, lengths, training=training)

    def _totals(self) -> Iterator[Tensor]:
        V = self.subject.vocab
        T = self.subject.length
        count = len(self.cuts)
        # Fewer positions where the vocabulary is large: a sum over it needs a pass for each token.
        passes = V * T * count // SUMMED
        step = max(1, min(count, passes))
        places = torch.tensor(self.cuts)[::step]
        rows = torch.arange(len(places))
        whole = V <= SAMPLED
        some = list(range(V))
        if not whole:
            generator = torch.Generator().manual_seed(self.seed)
            drawn = torch.randperm(V, generator=generator)
            some = drawn[:SAMPLED].tolist()
        for training in self.modes:
            first = self._continued(0, training)
            if first.dim() == 3:
                # The sum of all columns, which a runner adds as the last one.
                yield first[..., -1].double().exp()
                continue
            total = torch.zeros(len(rows), dtype=torch.float64)
            for v in some:
                scores = self._continued(v, training, step)
                total += scores[rows, places].exp()
            # Of a part of the vocabulary, only a sum above 1 is a fault.
            if not whole:
                total = total.clamp_min(1)
            yield total

    def _random(self, rows: int, seed: int) -> Tensor:
        """Return random tokens (B, T) without `<start>`."""
        own_seed = derive_seed(self.seed + seed, "probe")
        generator = torch.Generator().manual_seed(own_seed)
        shape = (rows, self.subject.length)
        return torch.randint(self.subject.vocab, shape, generator=generator)

    def _outputs(
        self,
        tokens: Tensor,
        lengths: Tensor,
        *,
        training: bool = False,
        whole: bool = False,
    ) -> Tensor:
        """Return the outputs, computed in parts unless the batch has to be `whole`."""
        rows = _rows_at_once(ATTENDED, tokens.shape[1], self.subject.vocab)
        if whole:
            rows = len(tokens)
        call = partial(self.subject.outputs, training=training, noise=0)
        parts = map(call, tokens.split(rows), lengths.split(rows))
        return torch.cat(list(parts))


def _rows_at_once(attended: int, T: int, vocab: int) -> int:
    """Return how many rows fit in memory: attention needs T² numbers a row, the outputs T V."""
    by_outputs = OUTPUTS // (T * vocab)
    rows = min(attended // T**2, by_outputs)
    return max(1, rows)


def sought_leaks(subject: Subject, seed: int = 0) -> tuple[float, int]:
    """Replace all tokens from each position on; return the largest deviation and their number.

    Unlike `future`, every position of a long sequence is one, in evaluation and as long as the
    time of a large model lasts.
    """
    T = subject.length
    task = Task(vocab=subject.vocab, length=T)
    outputs = partial(subject.outputs, training=False, noise=0)
    known, _ = batch(task, 1, seed)
    later, _ = batch(task, 1, seed + 1)
    # Every token differs from the one it replaces.
    next_token = (known + 1) % subject.vocab
    later = later.where(later != known, next_token)
    # The likely positions first, for the case that time is short.
    likely = cut_positions(T)
    rest = set(range(1, T)).difference(likely)
    places = torch.tensor(likely + sorted(rest))
    # In evaluation only: four times as many rows fit.
    rows = _rows_at_once(4 * ATTENDED, T, subject.vocab)
    worst = 0.0
    seen = 0
    # Of this process: other load on the machine must not end the search.
    end = time.process_time() + SECONDS
    before = torch.empty(0)
    for cuts in places.split(rows):
        if seen and time.process_time() > end:
            break
        kept = torch.arange(T) < cuts[:, None]
        changed = known.where(kept, later)
        full = full_lengths(changed)
        if len(before) != len(cuts):  # the same shape as the changed rows
            before = outputs(known.expand_as(changed), full)
        after = outputs(changed, full)
        worst = max(worst, _deviation_before(cuts.tolist(), after, before))
        seen += len(cuts)
    return worst, seen


def cut_positions(length: int) -> list[int]:
    """Return powers of two and their neighbours, eighths of the length, and the last positions.

    A complete chunk of any size that is read as a whole contains one of them.
    """
    places = {length - 2, length - 1}
    for k in range(length.bit_length()):
        # Around powers of two: chunks, windows and dilations end there.
        places |= {2**k - 1, 2**k, 2**k + 1}
    for k in range(1, 8):
        places.add(length * k // 8)
    return sorted(place for place in places if 1 <= place < length)


def disturbed(model: LanguageModel, task: Task | None = None) -> LanguageModel:
    """Return a copy in float64, or a new model for another task, with noise on every weight.

    A weight that starts at zero can hide a leak.
    """
    # In double: rounding must not look like a leak.
    if task in (None, model.task):
        model = copy.deepcopy(model).double()
    else:
        model = new_model(model, 0, task).double()
        if model.closed_form:
            tokens, lengths = batch(model.task)
            model.fit_closed_form(tokens, lengths)
    disturb(model)
    return model


@torch.no_grad()
def disturb(module: nn.Module):
    """Add noise to every weight that is trained, in place."""
    seed = derive_seed(0, "disturbed")
    generator = torch.Generator().manual_seed(seed)
    for weight in trained_weights(module):
        std = DISTURBANCE
        if weight.dim() > 1:
            # Larger noise in a wide matrix would saturate every gate behind it.
            std = min(DISTURBANCE, weight.shape[-1] ** -0.5)
        kind = torch.float64
        if weight.is_complex():
            kind = torch.complex128
        noise = torch.randn(weight.shape, generator=generator, dtype=kind)
        weight += (std * noise).to(weight)


def model_subject(model: LanguageModel) -> Subject:
    """Return a model of the zoo as a subject, at the length of its task."""
    names = ("pads", "mates")
    is_density = model.score in (Score.EXACT, Score.CONDITIONAL)
    if is_density and model.causal:
        names = ("future", "itself") + names + ("steps",)

    def other_forms(tokens: Tensor, once: Tensor, cuts: list[int]) -> Iterator[Tensor]:
        prefixes = once.clone()
        for u in few_cuts(cuts):
            dense = next_log_prob(model, tokens[:, :u])
            prefixes[:, u] = of_tokens(dense, tokens[:, u])
        yield prefixes

    task = model.task
    scores = partial(log_prob, model)
    return Subject(task.vocab, task.length, scores, names, other_forms=other_forms)


def obey(model: LanguageModel, *names: str, length: int = 0):
    """Assert that probes find no fault, at the length of the model's task or another length."""
    task = model.task
    if length:
        task = replace(model.task, length=length)
    probes = Probes(model_subject(disturbed(model, task)))
    for name in names:
        deviation = getattr(probes, name)()
        assert deviation <= TOLERANCE, PROBES[name].fault.format(deviation)


def few_cuts(cuts: list[int]) -> list[int]:
    """Return a few of the positions at which prefixes end: each is a pass of its own."""
    step = max(1, len(cuts) // 6)
    return cuts[1::step]


def _deviation_before(cuts: list[int], after: Tensor, before: Tensor) -> float:
    """Return the largest difference of the outputs before cuts[i] in row i."""
    worst = 0.0
    for actual, expected, u in zip(after, before, cuts, strict=True):
        worst = max(worst, _deviation(actual[:u], expected[:u]))
    return worst


def _deviation_from_1(total: Tensor) -> float:
    return _deviation(total, torch.ones_like(total))


def _deviation(actual: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference; infinity if a value is NaN."""
    difference = actual.double() - expected.double()
    # Equal infinities have no difference.
    gap = difference.abs().masked_fill(actual == expected, 0.0)
    if not gap.numel():
        return 0.0
    gap = gap.nan_to_num(nan=torch.inf, posinf=torch.inf)
    return gap.max().item()
