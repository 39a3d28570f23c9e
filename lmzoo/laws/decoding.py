"""Decoding token by token gives the same distributions as reading the whole prefix."""

import torch

from lmzoo.contract import LanguageModel
from lmzoo.decode.start import select_rows
from lmzoo.laws.support import assert_close, next_log_prob
from lmzoo.laws.tiny import CLOSE, SAME, every_sequence, sources


def law_advance_equals_next_log_prob(model: LanguageModel) -> None:
    """`advance` equals `next_log_prob` of the tokens read so far, also after rows are permuted."""
    tokens, _ = every_sequence(model.task)
    source = sources(model.task, len(tokens)) if model.conditional else ()
    model.eval()
    state = model.begin(len(tokens), *source)
    with torch.no_grad():
        for t in range(1, model.task.length):
            before, token = state, tokens[:, t - 1]
            dense, state = model.advance(before, token)
            expected = next_log_prob(model, tokens[:, :t], *source)
            assert_close(dense, expected, CLOSE, f"advance after {t} tokens")
            repeated, _ = model.advance(before, token)
            assert_close(repeated, dense, SAME, "a second advance from the same state")
            rows = torch.arange(len(tokens)).roll(t)
            tokens, source, state = select_rows((tokens, source, state), rows)


def law_most_probable_is_the_argmax(model: LanguageModel) -> None:
    """`most_probable` is a token of greatest probability, at every position of every sequence."""
    tokens, lengths = every_sequence(model.task)
    source = sources(model.task, len(tokens)) if model.conditional else ()
    with torch.no_grad():
        best = model.eval().most_probable(tokens, lengths, *source)
    for t in range(1, model.task.length):
        dense = next_log_prob(model, tokens[:, :t], *source)
        chosen = dense.gather(1, best[:, t - 1 : t])[:, 0]
        assert_close(chosen, dense.amax(1), CLOSE, f"the most probable token after {t} tokens")
