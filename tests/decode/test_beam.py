"""Beam search finds what enumeration finds; with width 1 it is greedy decoding."""

import math

import pytest
import torch

from lmzoo.contract import END, START, LanguageModel
from lmzoo.decode import beam_search, sample
from tests.decode.toys import Apple, all_sequences, sharp_model, to_text

MODELS = ["lstm_mixture", "gpt", "ngram_count", "lagged_aggregate_markov"]


def greedy(model: LanguageModel, length: int, prefix: tuple[int, ...] = ()) -> list[int]:
    return sample(model, 1, length, temperature=0.0, prefix=prefix)[0].tolist()


def test_greedy_decoding_misses_the_best_sequence():
    model = Apple().eval()
    assert to_text(greedy(model, 4)) == "大妈"
    (only,) = beam_search(model, 4, 1)
    assert to_text(only.tokens) == "大妈"
    assert round(math.exp(only.log_prob), 6) == 0.12


def test_two_beams_find_a_sequence_that_greedy_decoding_misses():
    best, second = beam_search(Apple().eval(), 4, 2)
    assert to_text(best.tokens) == "苹果"
    assert round(math.exp(best.log_prob), 6) == 0.45
    assert to_text(second.tokens) == "大妈"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("length", [2, 6])
@pytest.mark.parametrize("seed", range(3))
def test_width_one_is_greedy_decoding(name, alpha, length, seed):
    model = sharp_model(name, vocab=6, length=6, seed=seed)
    (only,) = beam_search(model, length, 1, alpha=alpha)
    size = len(only.tokens)
    tokens = greedy(model, length)
    assert list(only.tokens) == tokens[:size]
    assert not any(tokens[size:])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_a_wide_beam_finds_every_sequence_in_order(name, alpha):
    model = sharp_model(name)
    scores = all_sequences(model)
    # Wide enough for every sequence.
    hypotheses = beam_search(model, model.task.length, model.task.vocab**3, alpha=alpha)
    possible = sorted(tokens for tokens, score in scores.items() if score > -math.inf)
    assert sorted(found.tokens for found in hypotheses) == possible
    ranks = []
    for found in hypotheses:
        score = scores[found.tokens]
        rank = score / (len(found.tokens) - 1) ** alpha
        assert found.log_prob == pytest.approx(score, abs=1e-4)
        assert found.rank == pytest.approx(rank, abs=1e-4)
        ranks.append(rank)
    assert hypotheses[0].rank == pytest.approx(max(ranks), abs=1e-4)


@pytest.mark.parametrize("width", [2, 3, 7])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_narrow_beam_returns_different_sequences_sorted_by_rank(width, alpha):
    model = sharp_model("gru", vocab=6, length=6, seed=1)
    hypotheses = beam_search(model, 6, width, alpha=alpha)
    different = {found.tokens for found in hypotheses}
    ranks = [found.rank for found in hypotheses]
    assert len(different) == len(hypotheses) == width
    assert ranks == sorted(ranks, reverse=True)


def test_what_a_narrow_beam_finds_is_complete_and_has_its_score():
    model = sharp_model("gru", vocab=6, length=6, seed=1)
    for found in beam_search(model, 6, 7):
        first, *words, last = found.tokens
        length = torch.tensor([len(found.tokens)])
        score = model.log_prob(torch.tensor([found.tokens]), length).sum().item()
        assert found.log_prob == pytest.approx(score, abs=1e-4)
        assert first == START
        assert len(found.tokens) == 6 or last in (0, END)
        assert {0, END}.isdisjoint(words)


def test_a_finished_sequence_is_kept_when_unfinished_prefixes_outrank_it():
    model = Apple().eval()
    model = Apple().eval()
    with torch.no_grad():
        after = model.table.weight.fill_(-torch.inf)
        after[START, [END, 4, 6, 7]] = torch.tensor([0.24, 0.5, 0.13, 0.13]).log()
        # Prefixes of 0.25 each outrank 0.24, but have ten continuations each.
        after[4, [5, 8]] = math.log(0.5)
        after[[5, 8], 4:14] = math.log(0.1)
    best, _ = beam_search(model, 4, 2)
    assert best.tokens == (START, END)
    assert math.exp(best.log_prob) == pytest.approx(0.24)
    assert math.exp(best.log_prob) == pytest.approx(0.24)


@pytest.mark.parametrize("name", ["lstm_mixture", "gpt", "bigram_latent_crf"])
def test_decoding_continues_a_prefix(name):
    model = sharp_model(name, vocab=5, length=5)
    begun = (START, 4, 3)
    prefix_score = model.log_prob(torch.tensor([begun]), torch.tensor([3])).sum().item()
    # Scores are those of what follows the prefix.
    scores = {}
    for tokens, score in all_sequences(model).items():
        if tokens[:3] == begun:
            scores[tokens] = score - prefix_score
    hypotheses = beam_search(model, 5, 5**2, prefix=begun[1:])
    assert {found.tokens for found in hypotheses} == set(scores)
    assert hypotheses[0].log_prob == pytest.approx(max(scores.values()), abs=1e-4)
    for found in hypotheses:
        assert found.log_prob == pytest.approx(scores[found.tokens], abs=1e-4)


def test_greedy_decoding_continues_a_prefix():
    model = sharp_model("gpt", vocab=5, length=5)
    assert greedy(model, 5, prefix=(4, 3))[:3] == [START, 4, 3]
