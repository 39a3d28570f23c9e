"""Beam search finds what enumeration finds; with width 1 it is greedy decoding."""

import math

import pytest
import torch

from lmzoo.contract import END, START
from lmzoo.decode import beam_search, sample
from tests.cases import parametrize
from tests.decode.toys import Apple, all_sequences, sharp_model, to_text

MODELS = ["lstm_mixture", "gpt", "ngram_count", "lagged_aggregate_markov"]


def greedy(model, length, prefix=()):
    options = {"temperature": 0.0, "prefix": prefix}
    (tokens,) = sample(model, 1, length, **options)
    return tokens.tolist()


def probability(found):
    return math.exp(found.log_prob)


def near(score):
    """Return what equals a score up to the rounding of single precision."""
    return pytest.approx(score, abs=1e-4)


def test_greedy_decoding_misses_the_best_sequence():
    model = Apple().eval()
    (only,) = beam_search(model, 4, 1)
    assert to_text(greedy(model, 4)) == "大妈"
    assert to_text(only.tokens) == "大妈"
    assert round(probability(only), 6) == 0.12


def test_two_beams_find_a_sequence_that_greedy_decoding_misses():
    model = Apple().eval()
    best, second = beam_search(model, 4, 2)
    assert to_text(best.tokens) == "苹果"
    assert round(probability(best), 6) == 0.45
    assert to_text(second.tokens) == "大妈"


@parametrize("name", MODELS)
@parametrize("alpha", [0.0, 1.0])
@parametrize("length", [2, 6])
@parametrize("seed", range(3))
def test_width_one_is_greedy_decoding(name, alpha, length, seed):
    sizes = {"vocab": 6, "length": 6}
    model = sharp_model(name, seed=seed, **sizes)
    (only,) = beam_search(model, length, 1, alpha=alpha)
    size = len(only.tokens)
    tokens = greedy(model, length)
    assert list(only.tokens) == tokens[:size]
    # Pads follow the end.
    assert not any(tokens[size:])


@parametrize("name", MODELS)
@parametrize("alpha", [0.0, 0.7, 1.0])
def test_a_wide_beam_finds_every_sequence_in_order(name, alpha):
    model = sharp_model(name)
    scores = all_sequences(model)
    task = model.task
    # Wide enough for every sequence.
    count = task.vocab**3
    hypotheses = beam_search(model, task.length, count, alpha=alpha)
    possible = set()
    for tokens, score in scores.items():
        if score > -math.inf:
            possible.add(tokens)
    assert len(hypotheses) == len(possible)
    assert {found.tokens for found in hypotheses} == possible
    ranks = []
    for found in hypotheses:
        score = scores[found.tokens]
        size = len(found.tokens) - 1
        rank = score / size**alpha
        assert found.log_prob == near(score)
        assert found.rank == near(rank)
        ranks.append(rank)
    best = hypotheses[0]
    assert best.rank == near(max(ranks))


@pytest.fixture
def gru():
    return sharp_model("gru", vocab=6, length=6, seed=1)


@parametrize("width", [2, 3, 7])
@parametrize("alpha", [0.0, 1.0])
def test_a_narrow_beam_returns_different_sequences_sorted_by_rank(gru, width, alpha):
    hypotheses = beam_search(gru, 6, width, alpha=alpha)
    different = {found.tokens for found in hypotheses}
    ranks = [found.rank for found in hypotheses]
    assert len(hypotheses) == width
    assert len(different) == width
    assert ranks == sorted(ranks, reverse=True)


def test_what_a_narrow_beam_finds_is_complete_and_has_its_score(gru):
    for found in beam_search(gru, 6, 7):
        first, *words, last = found.tokens
        size = len(found.tokens)
        tokens = torch.tensor([found.tokens])
        scores = gru.log_prob(tokens, torch.tensor([size]))
        assert found.log_prob == near(scores.sum().item())
        assert first == START
        # Complete: as long as possible, or ended.
        assert size == 6 or last in (0, END)
        assert {0, END}.isdisjoint(words)


def test_a_finished_sequence_is_kept_when_unfinished_prefixes_outrank_it():
    model = Apple().eval()
    table = torch.full_like(model.table.weight, -torch.inf)
    first = torch.tensor([0.24, 0.5, 0.13, 0.13])
    words = [END, 4, 6, 7]
    table[START, words] = first.log()
    # Prefixes of 0.25 each outrank 0.24, but have ten continuations each.
    table[4, [5, 8]] = math.log(0.5)
    continued = [5, 8]
    table[continued, 4:14] = math.log(0.1)
    model.table.load_state_dict({"weight": table})
    best, _ = beam_search(model, 4, 2)
    assert best.tokens == (START, END)
    assert probability(best) == pytest.approx(0.24)


@parametrize("name", ["lstm_mixture", "gpt", "bigram_latent_crf"])
def test_decoding_continues_a_prefix(name):
    model = sharp_model(name, vocab=5, length=5)
    begun = (START, 4, 3)
    tokens = torch.tensor([begun])
    scored = model.log_prob(tokens, torch.tensor([3]))
    prefix_score = scored.sum().item()
    # Scores are those of what follows the prefix.
    scores = {}
    for tokens, score in all_sequences(model).items():
        if tokens[:3] == begun:
            scores[tokens] = score - prefix_score
    prefix = begun[1:]
    hypotheses = beam_search(model, 5, 5**2, prefix=prefix)
    assert {found.tokens for found in hypotheses} == set(scores)
    best = hypotheses[0]
    assert best.log_prob == near(max(scores.values()))
    for found in hypotheses:
        score = scores[found.tokens]
        assert found.log_prob == near(score)


def test_greedy_decoding_continues_a_prefix():
    model = sharp_model("gpt", vocab=5, length=5)
    begun = [START, 4, 3]
    tokens = greedy(model, 5, prefix=(4, 3))
    assert tokens[:3] == begun
