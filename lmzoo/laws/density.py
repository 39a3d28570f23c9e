"""Laws of an EXACT score: a normalised causal density, also when it is decoded token by token."""

import torch

from lmzoo.contract import LanguageModel
from lmzoo.decode import select_rows
from lmzoo.functional.token_scores import of_tokens
from lmzoo.laws.probes import LENGTH, obey
from lmzoo.laws.tiny import (
    CLOSE,
    SAME,
    assert_close,
    batch,
    every_sequence,
    log_prob,
    next_log_prob,
    random_source,
)


def law_sums_to_one(model: LanguageModel):
    """The probabilities of all sequences sum to one."""
    obey(model, "total")


def law_causal(model: LanguageModel):
    """No score depends on a later token, and Σ_v P(v) = 1 at every position."""
    # At its own length, and at one with chunks of up to 64 tokens.
    for length in (model.task.length, LENGTH):
        obey(model, "future", "itself", length=length)


def law_next_is_a_distribution(model: LanguageModel):
    """`next_log_prob` is (B, V), sums to one, and depends on its own row only."""
    tokens, _ = batch(model.task)
    shape = (len(tokens), model.task.vocab)
    for t in range(1, model.task.length):
        prefix = tokens[:, :t]
        dense = next_log_prob(model, prefix)
        assert dense.shape == shape, f"next_log_prob: {dense.shape}"
        total = dense.exp().sum(1)
        expected = torch.ones_like(total)
        assert_close(total, expected, CLOSE, f"next_log_prob after {t} tokens")
        alone = next_log_prob(model, prefix[:1])
        assert_close(alone, dense[:1], CLOSE, "next_log_prob of a batch of one sequence")


def law_log_prob_equals_next_log_prob(model: LanguageModel):
    """`log_prob` is `next_log_prob` of the actual token, at every position of every sequence."""
    tokens, lengths = every_sequence(model.task)
    scores = log_prob(model, tokens, lengths)
    for t in range(1, model.task.length):
        dense = next_log_prob(model, tokens[:, :t])
        chosen = of_tokens(dense, tokens[:, t])
        assert_close(chosen, scores[:, t], CLOSE, f"score at {t}")


def law_advance_equals_next_log_prob(model: LanguageModel):
    """`advance` equals `next_log_prob` of the tokens read so far, also after rows are permuted."""
    tokens, _ = every_sequence(model.task)
    source = random_source(model, len(tokens))
    model.eval()
    state = model.begin(len(tokens), *source)
    with torch.no_grad():
        for t in range(1, model.task.length):
            before = state
            token = tokens[:, t - 1]
            dense, state = model.advance(before, token)
            expected = next_log_prob(model, tokens[:, :t], *source)
            assert_close(dense, expected, CLOSE, f"advance after {t} tokens")
            repeated, _ = model.advance(before, token)
            assert_close(repeated, dense, SAME, "a second advance from the same state")
            # Beam search selects rows of a state; a state that is no tensor of rows fails here.
            rows = torch.arange(len(tokens)).roll(t)
            parts = (tokens, source, state)
            tokens, source, state = select_rows(parts, rows)


def law_most_probable_is_the_argmax(model: LanguageModel):
    """`most_probable` is a token of greatest probability, at every position of every sequence."""
    tokens, lengths = every_sequence(model.task)
    source = random_source(model, len(tokens))
    model.eval()
    with torch.no_grad():
        best = model.most_probable(tokens, lengths, *source)
    for t in range(1, model.task.length):
        dense = next_log_prob(model, tokens[:, :t], *source)
        # `most_probable` has no column for `<start>`.
        chosen = of_tokens(dense, best[:, t - 1])
        assert_close(chosen, dense.amax(1), CLOSE, f"the most probable token after {t} tokens")
