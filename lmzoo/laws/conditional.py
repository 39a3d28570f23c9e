"""Laws of a CONDITIONAL score: a normalised density given a source."""

from functools import partial

import torch

from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.laws.probes import disturbed
from lmzoo.laws.tiny import (
    CLOSE,
    SAME,
    assert_close,
    batch,
    every_sequence,
    log_prob,
    next_log_prob,
    sources,
)
from lmzoo.types import needs_source_message


def law_sums_to_one_given_any_source(model: LanguageModel):
    """Given any source of any length, the probabilities of all targets sum to one."""
    targets, lengths = every_sequence(model.task)
    count = len(targets)
    words, sizes = sources(model.task, 4, seed=1)
    for source, n in zip(words, sizes, strict=True):
        # One source for all targets: these are the events that sum to one.
        repeated = source.expand(count, -1)
        known = n.expand(count)
        scores = log_prob(model, targets, lengths, repeated, known)
        log_probs = scores.double().sum(1)
        total = log_probs.exp().sum()
        name = f"total probability given {n} source tokens"
        assert_close(total, torch.ones_like(total), CLOSE, name)


def law_source_is_read(model: LanguageModel):
    """Every source token influences some score, and a missing source is an error.

    The weights are disturbed, because behind one that starts at zero nothing is read.
    """
    tokens, lengths = batch(model.task)
    source, n = sources(model.task, len(tokens))
    # Full sources: every position is a token.
    n = torch.full_like(n, model.task.source_length)
    reader = disturbed(model)
    before = log_prob(reader, tokens, lengths, source, n)
    others = (source + 1) % model.task.source_vocab
    for i in range(model.task.source_length):
        changed = source.clone()
        changed[:, i] = others[:, i]
        after = log_prob(reader, tokens, lengths, changed, n)
        gap = (after - before).abs()
        assert gap.max() > CLOSE, f"source token {i} changes no score"
    result = "a score"
    try:
        model.log_prob(tokens, lengths)
    except UserError as error:
        result = str(error)
    assert result == needs_source_message(model.name), f"without a source: {result}"


def law_source_padding_is_ignored(model: LanguageModel):
    """Neither the content nor the amount of source padding changes a score."""
    tokens, lengths = batch(model.task)
    source, n = sources(model.task, len(tokens))
    longest = model.task.source_length
    # From n on there is padding.
    padding = torch.arange(longest) >= n[:, None]
    for training in (False, True):
        score = partial(log_prob, model, tokens, lengths, training=training)
        before = score(source, n)
        for filler in range(model.task.source_vocab):
            filled = source.masked_fill(padding, filler)
            after = score(filled, n)
            assert_close(after, before, SAME, f"scores after padding the source with {filler}")
    before = log_prob(model, tokens, lengths, source, n)
    for width in range(1, longest):
        fits = n <= width
        trimmed = source[fits, :width]
        after = log_prob(model, tokens[fits], lengths[fits], trimmed, n[fits])
        assert_close(after, before[fits], CLOSE, f"scores when the source is trimmed to {width}")


def law_source_belongs_to_its_row(model: LanguageModel):
    """A row's scores depend on its own source only, whatever its position in the batch."""
    tokens, lengths = batch(model.task)
    source, n = sources(model.task, len(tokens))
    others, other_lengths = sources(model.task, len(tokens), seed=1)
    # The first row keeps its source; all others change theirs.
    others[0] = source[0]
    other_lengths[0] = n[0]
    for training in (False, True):
        score = partial(log_prob, model, tokens, lengths, training=training)
        before = score(source, n)
        after = score(others, other_lengths)
        assert_close(after[0], before[0], SAME, "scores in a batch with other sources")
    before = log_prob(model, tokens, lengths, source, n)
    order = torch.arange(len(tokens)).roll(2)
    turned = [part[order] for part in (tokens, lengths, source, n)]
    after = log_prob(model, *turned)
    assert_close(after, before[order], CLOSE, "scores in another order")
    prefix = tokens[:, :2]
    dense = next_log_prob(model, prefix, source, n)
    for row in torch.arange(len(tokens)).split(1):
        alone = next_log_prob(model, prefix[row], source[row], n[row])
        assert_close(dense[row], alone, CLOSE, "next_log_prob in a batch with other sources")
