r"""Evaluation: the token loss and the sentence loss of a model on a set of sequences.

    NLL_b = −Σ_t log P(s_t | s_<t)         n_b = scored tokens of sequence b
    token     Σ_b NLL_b / Σ_b n_b          equal weight per token: the default
    sentence  mean_b( NLL_b / n_b )        equal weight per sequence: the metric of S0's tables

Both are equal when all n_b are equal. In a task, which scores some tokens only, also

    accuracy           share of scored tokens that are the most probable token
    sequence accuracy  share of sequences all of whose scored tokens are
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.data.batches import gather_batch
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.kernels.device import CPU, device_of, device_scope
from lmzoo.kernels.guest import in_evaluation


@dataclass(frozen=True)
class Losses:
    """Losses in nats per scored token."""

    token: float
    sentence: float
    tokens: int
    """Number of scored tokens."""
    nll: Float[Tensor, "N"] = field(compare=False)
    """NLL of each sequence in nats, in the order of the data."""
    accuracy: float | None = None
    """None unless the data are a task."""
    sequence_accuracy: float | None = None
    report: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Further numbers of the model, such as the KL of a VAE."""

    @property
    def perplexity(self) -> float:
        # The exponential of more overflows.
        return math.exp(min(self.token, 700.0))

    @property
    def accuracies(self) -> dict[str, float]:
        """Both accuracies by name; {} unless the data are a task."""
        if self.accuracy is None or self.sequence_accuracy is None:
            return {}
        return {"accuracy": self.accuracy, "sequence_accuracy": self.sequence_accuracy}


REPORT_SEQUENCES = 200
"""Validation sequences of a model's `report`, which can hold V floats per position in memory."""
MAX_PROBABILITIES = 2**25
"""Numbers in the distributions of the next token that are in memory at a time, if possible."""


@torch.no_grad()
@in_evaluation
def evaluate(model: LanguageModel, part: Sequences, *, batch: int = 500) -> Losses:
    """Return the losses on all sequences; sums are taken in double precision."""
    nll = torch.empty(len(part), dtype=torch.float64, device=CPU)
    part = part.to(device_of(model))
    # Sorted by length: a batch has little padding.
    order = part.lengths.argsort(stable=True)
    for rows in order.split(batch):
        sequences = gather_batch(part, rows, trim=not model.leaks)
        with device_scope(model):
            scores = model.log_prob(*sequences.inputs)
        if sequences.scored is not None:
            scores = scores.where(sequences.scored, 0.0)
        # A sum of float32 would lose digits: it is of up to thousands of tokens.
        log_probs = scores.double().sum(1)
        nll[rows.cpu()] = -log_probs.cpu()
    right = None
    if part.is_task:
        right = count_right(model, part, model.most_probable)
    return compute_losses(nll, part.counts, right)


@torch.no_grad()
def count_right(
    model: LanguageModel, part: Sequences, most_probable: Callable[..., Tensor]
) -> Int[Tensor, "N"]:
    """Return the number of scored tokens of each sequence that are the most probable token.

    `most_probable` is the method of the model, for a pack with the weights of one member.
    """
    assert part.scored is not None
    model.require_next_token()
    right = torch.empty(len(part), dtype=torch.int64, device=CPU)
    numbers = model.task.length * model.task.vocab  # of the distributions of one sequence
    # Distributions of all positions are in memory at once.
    fitting = MAX_PROBABILITIES // numbers
    size = max(1, min(500, fitting))
    order = part.lengths.argsort(stable=True)
    for rows in order.split(size):
        batch = gather_batch(part, rows)
        with device_scope(model):
            best = most_probable(*batch.inputs)
        assert batch.scored is not None
        is_right = best == batch.tokens[:, 1:]
        hits = is_right & batch.scored[:, 1:]
        right[rows.cpu()] = hits.sum(1).cpu()
    return right


def compute_losses(
    nll: Float[Tensor, "N"], counts: Int[Tensor, "N"], right: Int[Tensor, "N"] | None = None
) -> Losses:
    """Return both losses from the NLL (float64) and the scored tokens of each sequence.

    `right` is the number of scored tokens that are the most probable token, in a task.
    """
    n = counts.cpu().double()
    total = n.sum()
    found = Losses(
        token=float(nll.sum() / total),
        sentence=float((nll / n).mean()),
        tokens=int(total),
        nll=nll,
    )
    if right is None:
        return found
    is_whole = right == n
    # By tokens, unlike `sentence`: long sequences count more.
    share = float(right.sum() / total)
    whole = float(is_whole.double().mean())
    return replace(found, accuracy=share, sequence_accuracy=whole)


def text_losses(part: Sequences, scores: Tensor) -> Losses:
    """Return the losses of evaluation windows from log P of each scored token of their text."""
    counts = part.counts.cpu()
    windows = len(counts)
    window = torch.arange(windows).repeat_interleave(counts)
    nll = torch.zeros(windows, dtype=torch.float64)
    # Windows overlap no text: each scored token belongs to one.
    nll = nll.index_add_(0, window, -scores)
    return compute_losses(nll, counts)


@torch.no_grad()
@in_evaluation
def model_report(model: LanguageModel, corpus: Corpus) -> dict[str, float]:
    """Return the `report` of a model on validation sequences; {} for most models."""
    count = min(REPORT_SEQUENCES, len(corpus.valid))
    rows = torch.arange(count)
    batch = gather_batch(corpus.valid, rows, trim=not model.leaks)
    batch = batch.to(device_of(model))
    return model.report(*batch.inputs)
