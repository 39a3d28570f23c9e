"""Beam search finds what enumeration finds; with width 1 it is greedy decoding."""

import itertools
import math

import pytest
import torch

from lmzoo.contract import END, START, LanguageModel
from lmzoo.decode import beam_search, sample
from tests.decode.toys import Apple, all_sequences, sharp_model, to_text

MODELS = ["lstm_mixture", "gpt", "ngram_count", "lagged_aggregate_markov"]


def greedy(model: LanguageModel, length: int, prefix: tuple[int, ...] = ()) -> list[int]:
    return sample(model, 1, length, temperature=0.0, prefix=prefix)[0].tolist()


def test_two_beams_find_a_sequence_that_greedy_decoding_misses():
    model = Apple().eval()
    assert to_text(greedy(model, 4)) == "大妈"
    (only,) = beam_search(model, 4, 1)
    assert (to_text(only.tokens), round(math.exp(only.log_prob), 6)) == ("大妈", 0.12)
    best, second = beam_search(model, 4, 2)
    assert (to_text(best.tokens), round(math.exp(best.log_prob), 6)) == ("苹果", 0.45)
    assert to_text(second.tokens) == "大妈"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_width_one_is_greedy_decoding(name, alpha):
    for seed, length in itertools.product(range(3), (2, 6)):
        model = sharp_model(name, vocab=6, length=6, seed=seed)
        (only,) = beam_search(model, length, 1, alpha=alpha)
        tokens = greedy(model, length)
        assert list(only.tokens) == tokens[: len(only.tokens)]
        assert not any(tokens[len(only.tokens) :])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_a_wide_beam_finds_every_sequence_in_order(name, alpha):
    model = sharp_model(name)
    scores = all_sequences(model)
    hypotheses = beam_search(model, model.task.length, model.task.vocab**3, alpha=alpha)
    possible = sorted(key for key, score in scores.items() if score > -math.inf)
    assert sorted(h.tokens for h in hypotheses) == possible
    ranks = {tokens: score / (len(tokens) - 1) ** alpha for tokens, score in scores.items()}
    assert hypotheses[0].rank == pytest.approx(max(ranks.values()), abs=1e-4)
    for h in hypotheses:
        assert h.log_prob == pytest.approx(scores[h.tokens], abs=1e-4)
        assert h.rank == pytest.approx(ranks[h.tokens], abs=1e-4)


@pytest.mark.parametrize("width", [2, 3, 7])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_narrow_beam_returns_different_sequences_sorted_by_rank(width, alpha):
    model = sharp_model("gru", vocab=6, length=6, seed=1)
    hypotheses = beam_search(model, 6, width, alpha=alpha)
    assert len({h.tokens for h in hypotheses}) == len(hypotheses) == width
    ranks = [h.rank for h in hypotheses]
    assert ranks == sorted(ranks, reverse=True)
    for h in hypotheses:
        tokens = torch.tensor([h.tokens])
        score = model.log_prob(tokens, torch.tensor([len(h.tokens)])).sum().item()
        assert h.log_prob == pytest.approx(score, abs=1e-4)
        assert h.tokens[0] == START
        assert len(h.tokens) == 6 or h.tokens[-1] in (0, END)
        assert not {0, END} & set(h.tokens[1:-1])


def test_a_finished_sequence_is_kept_when_unfinished_prefixes_outrank_it():
    model = Apple().eval()
    with torch.no_grad():
        model.table.weight.fill_(-torch.inf)
        model.table.weight[START, [END, 4, 6, 7]] = torch.tensor([0.24, 0.5, 0.13, 0.13]).log()
        model.table.weight[4, [5, 8]] = math.log(0.5)  # prefixes of 0.25 each outrank 0.24,
        model.table.weight[[5, 8], 4:14] = math.log(0.1)  # but have ten continuations each
    best = beam_search(model, 4, 2)[0]
    assert best.tokens == (START, END)
    assert math.exp(best.log_prob) == pytest.approx(0.24)


@pytest.mark.parametrize("name", ["lstm_mixture", "gpt", "bigram_latent_crf"])
def test_decoding_continues_a_prefix(name):
    model = sharp_model(name, vocab=5, length=5)
    prefix_score = model.log_prob(torch.tensor([[START, 4, 3]]), torch.tensor([3])).sum().item()
    whole = all_sequences(model).items()
    scores = {key: score - prefix_score for key, score in whole if key[:3] == (START, 4, 3)}
    hypotheses = beam_search(model, 5, 5**2, prefix=(4, 3))
    assert {h.tokens for h in hypotheses} == set(scores)
    assert hypotheses[0].log_prob == pytest.approx(max(scores.values()), abs=1e-4)
    for h in hypotheses:
        assert h.log_prob == pytest.approx(scores[h.tokens], abs=1e-4)
    assert greedy(model, 5, prefix=(4, 3))[:3] == [START, 4, 3]
