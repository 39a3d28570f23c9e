"""Decoding token by token is scoring the whole prefix, whatever a model carries."""

import torch

from lmzoo.contract import LanguageModel
from lmzoo.decode.start import pick
from tests.laws.ask import next_log_prob, same
from tests.tiny import CLOSE, SAME, every_sequence, sources


def law_steps_agree(model: LanguageModel) -> None:
    """`advance` gives `next_log_prob` of all it has read, also after rows changed places."""
    tokens, _ = every_sequence(model.task)
    given = sources(model.task, len(tokens)) if model.conditional else ()
    model.eval()
    carried = model.begin(len(tokens), *given)
    with torch.no_grad():
        for t in range(1, model.task.length):
            before, token = carried, tokens[:, t - 1]
            dense, carried = model.advance(before, token)
            whole = next_log_prob(model, tokens[:, :t], *given)
            same(dense, whole, CLOSE, f"advance after {t} tokens")
            same(model.advance(before, token)[0], dense, SAME, "advance from the same state")
            rows = torch.arange(len(tokens)).roll(t)
            tokens, given, carried = pick((tokens, given, carried), rows)
