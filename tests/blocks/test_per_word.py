"""What depends on one token only is the same by word and by position, gradients too."""

import pytest
import torch

from lmzoo.blocks.per_word import per_word
from lmzoo.contract import LanguageModel
from tests.laws.ask import log_prob, loss, same
from tests.tiny import CLOSE, batch, tiny

VOCAB = 30
PER_WORD = [
    "aggregate_markov",
    "bigram_latent_crf",
    "factorial_aggregate_markov",
    "interpolated_bigram",
    "latent_parent_positional",
    "latent_parent_typed",
    "latent_parent_uniform",
    "multi_transition_bigram",
    "prototype_rotation_mixture_sphere",
    "trigram_latent_crf_sphere",
]


def gradients(model: LanguageModel, copies: int) -> dict[str, torch.Tensor]:
    """Of the mean loss of a few sequences, each given `copies` times."""
    tokens, lengths = batch(model.task)
    model.zero_grad()
    loss(model, tokens.repeat(copies, 1), lengths.repeat(copies)).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("copies", [1, 10])
def test_results_are_read_at_their_positions(copies: int) -> None:
    table = torch.randn(VOCAB, 3)
    tokens = torch.randint(VOCAB, (2 * copies, 5))
    x, at = per_word(table, tokens)
    assert len(x) == min(VOCAB, tokens.numel())
    assert at(x.square()).equal(table[tokens].square())


@pytest.mark.parametrize("name", PER_WORD)
def test_a_large_batch_scores_like_a_small_one(name: str) -> None:
    """20 positions are fewer than the words, 200 are more: both ways are taken."""
    model = tiny(name, vocab=VOCAB, length=5)
    tokens, lengths = batch(model.task)
    few = log_prob(model, tokens, lengths).repeat(10, 1)
    many = log_prob(model, tokens.repeat(10, 1), lengths.repeat(10))
    same(many, few, CLOSE, "scores")
    one, other = gradients(model, 1), gradients(model, 10)
    for parameter, slope in one.items():
        same(other[parameter], slope, CLOSE, f"gradient of {parameter}")
