"""A density given a source: what a CONDITIONAL score claims beside being a density."""

import torch

from lmzoo.contract import LanguageModel, needs_source_message
from lmzoo.errors import UserError
from tests.laws.ask import log_prob, next_log_prob, same
from tests.tiny import CLOSE, SAME, batch, every_sequence, sources


def law_sums_to_one_given_any_source(model: LanguageModel) -> None:
    """For every source of every length the probabilities of all targets sum to one."""
    targets, lengths = every_sequence(model.task)
    for source, n in zip(*sources(model.task, 4, seed=1), strict=True):
        given = source.expand(len(targets), -1), n.expand(len(targets))
        total = log_prob(model, targets, lengths, *given).double().sum(1).exp().sum()
        same(total, torch.ones_like(total), CLOSE, f"total probability given {n} source tokens")


def law_source_is_read(model: LanguageModel) -> None:
    """Another token anywhere in the source moves some score; no source at all is refused."""
    tokens, lengths = batch(model.task)
    source, n = sources(model.task, len(tokens))
    n = torch.full_like(n, model.task.source_length)
    before = log_prob(model, tokens, lengths, source, n)
    for i in range(model.task.source_length):
        changed = source.clone()
        changed[:, i] = (source[:, i] + 1) % model.task.source_vocab
        after = log_prob(model, tokens, lengths, changed, n)
        assert (after - before).abs().max() > CLOSE, f"source token {i} changes no score"
    said = "a score"
    try:
        model.log_prob(tokens, lengths)
    except UserError as error:
        said = str(error)
    assert said == needs_source_message(model.name), f"without a source there is {said}"


def law_source_padding_is_ignored(model: LanguageModel) -> None:
    """Neither what stands beyond a source's length nor how much of it changes a score."""
    tokens, lengths = batch(model.task)
    source, n = sources(model.task, len(tokens))
    beyond = torch.arange(model.task.source_length) >= n[:, None]
    for training in (False, True):
        before = log_prob(model, tokens, lengths, source, n, training=training)
        for filler in range(model.task.source_vocab):
            filled = source.masked_fill(beyond, filler)
            after = log_prob(model, tokens, lengths, filled, n, training=training)
            same(after, before, SAME, f"scores after padding the source with {filler}")
    before = log_prob(model, tokens, lengths, source, n)
    for width in range(1, model.task.source_length):
        fits = n <= width
        after = log_prob(model, tokens[fits], lengths[fits], source[fits, :width], n[fits])
        same(after, before[fits], CLOSE, f"scores when the source is trimmed to {width}")


def law_source_belongs_to_its_row(model: LanguageModel) -> None:
    """The sources of batch-mates change nothing; a row's own moves with it."""
    tokens, lengths = batch(model.task)
    source, n = sources(model.task, len(tokens))
    mates, mate_lengths = sources(model.task, len(tokens), seed=1)
    mates[0], mate_lengths[0] = source[0], n[0]
    for training in (False, True):
        before = log_prob(model, tokens, lengths, source, n, training=training)[0]
        after = log_prob(model, tokens, lengths, mates, mate_lengths, training=training)[0]
        same(after, before, SAME, "scores beside batch-mates with other sources")
    before = log_prob(model, tokens, lengths, source, n)
    order = torch.arange(len(tokens)).roll(2)
    after = log_prob(model, tokens[order], lengths[order], source[order], n[order])
    same(after, before[order], CLOSE, "scores in another order")
    prefix = tokens[:, :2]
    dense = next_log_prob(model, prefix, source, n)
    for i in range(len(tokens)):
        row = slice(i, i + 1)
        alone = next_log_prob(model, prefix[row], source[row], n[row])
        same(dense[row], alone, CLOSE, "next_log_prob beside batch-mates with other sources")
