"""What depends on one token only is the same by word and by position, gradients too."""

import pytest
import torch

from lmzoo.blocks.unique import embed_unique, unique_rows
from lmzoo.contract import LanguageModel
from tests.laws.support import assert_close, log_prob, loss
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
    "log_bilinear_mixture",
    "multi_transition_bigram",
    "permutation_log_bilinear",
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
    x, at = embed_unique(table, tokens)
    assert len(x) == len(set(tokens.flatten().tolist()))
    assert at(x.square()).equal(table[tokens].square())


def test_each_distinct_window_stands_once_where_it_comes_first() -> None:
    windows = torch.tensor([[3, 1], [0, 1], [3, 1], [1, 3], [0, 1]])
    first, place = unique_rows(windows)
    assert sorted(first.tolist()) == [0, 1, 3]
    assert windows[first][place].equal(windows)


def test_under_vmap_no_shape_depends_on_the_tokens() -> None:
    """Members with other data are computed position by position, with the same results."""
    table, tokens = torch.randn(VOCAB, 3), torch.randint(VOCAB, (2, 4, 20))

    def squares(tokens: torch.Tensor) -> torch.Tensor:
        x, at = embed_unique(table, tokens)
        first, place = unique_rows(tokens)
        return at(x.square()) + 0 * first[place][:, None, None]

    for few in (tokens, tokens[:, :, :5]):
        assert torch.vmap(squares)(few).equal(table[few].square())


@pytest.mark.parametrize("name", PER_WORD)
def test_a_large_batch_scores_like_a_small_one(name: str) -> None:
    """Ten copies of a batch have its words, and no others."""
    model = tiny(name, vocab=VOCAB, length=5)
    tokens, lengths = batch(model.task)
    few = log_prob(model, tokens, lengths).repeat(10, 1)
    many = log_prob(model, tokens.repeat(10, 1), lengths.repeat(10))
    assert_close(many, few, CLOSE, "scores")
    one, other = gradients(model, 1), gradients(model, 10)
    for parameter, slope in one.items():
        assert_close(other[parameter], slope, CLOSE, f"gradient of {parameter}")
