"""Beam search finds what enumeration finds, and at width 1 what greedy decoding does."""

import itertools
import math

import pytest
import torch

from lmzoo.contract import END, START
from lmzoo.decode.beam import beam_search, contest
from lmzoo.decode.greedy import greedy
from tests.decode.toys import Apple, every_ending, read, sharp

MODELS = ["lstm_mixture", "gpt", "ngram_count", "lagged_aggregate_markov"]


def test_the_seeds_example_is_missed_by_greed_and_found_by_two_beams() -> None:
    model = Apple().eval()
    assert read(greedy(model, 4)[0].tolist()) == "大妈"
    (one,) = beam_search(model, 4, 1)
    assert (read(one.tokens), round(math.exp(one.log_prob), 6)) == ("大妈", 0.12)
    best, second = beam_search(model, 4, 2)
    assert (read(best.tokens), round(math.exp(best.log_prob), 6)) == ("苹果", 0.45)
    assert read(second.tokens) == "大妈"


def test_extensions_compete_with_what_has_ended() -> None:
    ranks = torch.tensor([-1.0, -3.0, -2.0, -torch.inf, -1.0], dtype=torch.float64)
    assert contest(ranks, [], 2).tolist() == [0, 4]
    assert contest(ranks, [-1.5], 3).tolist() == [0, 4]
    assert contest(ranks, [-0.5, -0.6], 3).tolist() == [0]
    assert contest(ranks, [-9.0], 9).tolist() == [0, 4, 2, 1]


def test_what_is_impossible_takes_no_place() -> None:
    found = beam_search(Apple().eval(), 4, 50)
    assert sorted(read(one.tokens) for one in found) == sorted(
        ["苹果", *("大" + s for s in "象人妈便军米姐")]
    )
    assert sum(math.exp(one.log_prob) for one in found) == pytest.approx(1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_one_beam_is_greedy(name: str, alpha: float) -> None:
    for seed, length in itertools.product(range(3), (2, 6)):
        model = sharp(name, vocab=6, length=6, seed=seed)
        (found,) = beam_search(model, length, 1, alpha=alpha)
        tokens = greedy(model, length)[0].tolist()
        assert list(found.tokens) == tokens[: len(found.tokens)]
        assert not any(tokens[len(found.tokens) :])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_enough_beams_find_every_sequence_in_order(name: str, alpha: float) -> None:
    model = sharp(name)
    known = every_ending(model)
    found = beam_search(model, model.task.length, model.task.vocab**3, alpha=alpha)
    assert {one.tokens for one in found} == {
        key for key, score in known.items() if score > -math.inf
    }
    assert len({one.tokens for one in found}) == len(found)
    ranks = {tokens: score / (len(tokens) - 1) ** alpha for tokens, score in known.items()}
    assert found[0].rank == pytest.approx(max(ranks.values()), abs=1e-4)
    for one in found:
        assert one.log_prob == pytest.approx(known[one.tokens], abs=1e-4)
        assert one.rank == pytest.approx(ranks[one.tokens], abs=1e-4)


@pytest.mark.parametrize("width", [2, 3, 7])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_few_beams_find_different_sequences_the_best_first(width: int, alpha: float) -> None:
    model = sharp("gru", vocab=6, length=6, seed=1)
    found = beam_search(model, 6, width, alpha=alpha)
    assert len({one.tokens for one in found}) == len(found) == width
    ranks = [one.rank for one in found]
    assert ranks == sorted(ranks, reverse=True)
    for one in found:
        tokens = torch.tensor([one.tokens])
        score = model.log_prob(tokens, torch.tensor([len(one.tokens)])).sum().item()
        assert one.log_prob == pytest.approx(score, abs=1e-4)
        assert one.tokens[0] == START
        assert len(one.tokens) == 6 or one.tokens[-1] in (0, END)
        assert not {0, END} & set(one.tokens[1:-1])


def test_the_best_that_has_ended_is_kept_when_other_beginnings_look_better() -> None:
    model = Apple().eval()
    with torch.no_grad():
        model.table.weight.fill_(-torch.inf)
        model.table.weight[START, [END, 4, 6, 7]] = torch.tensor([0.24, 0.5, 0.13, 0.13]).log()
        model.table.weight[4, [5, 8]] = math.log(0.5)  # 0.25 each, more than 0.24,
        model.table.weight[[5, 8], 4:14] = math.log(0.1)  # but then each falls apart into ten
    found = beam_search(model, 4, 2)
    assert found[0].tokens == (START, END)
    assert math.exp(found[0].log_prob) == pytest.approx(0.24)


def test_the_mean_prefers_no_short_sequence() -> None:
    model = Apple().eval()
    with torch.no_grad():
        model.table.weight.fill_(-torch.inf)
        model.table.weight[START, [END, 4]] = torch.tensor([0.55, 0.45]).log()
        model.table.weight[4, [END, 5]] = torch.tensor([0.1, 0.9]).log()
        model.table.weight[5, END] = 0.0
    assert beam_search(model, 4, 3)[0].tokens == (START, END)
    assert beam_search(model, 4, 3, alpha=1.0)[0].tokens == (START, 4, 5, END)


@pytest.mark.parametrize("name", ["lstm_mixture", "gpt", "bigram_latent_crf"])
def test_a_prefix_is_gone_on_from(name: str) -> None:
    model = sharp(name, vocab=5, length=5)
    known = every_ending(model)
    base = model.log_prob(torch.tensor([[START, 4, 3]]), torch.tensor([3])).sum().item()
    begun = {tokens: score - base for tokens, score in known.items() if tokens[:3] == (START, 4, 3)}
    found = beam_search(model, 5, 5**2, prefix=(4, 3))
    assert {one.tokens for one in found} == set(begun)
    assert found[0].log_prob == pytest.approx(max(begun.values()), abs=1e-4)
    for one in found:
        assert one.log_prob == pytest.approx(begun[one.tokens], abs=1e-4)
    assert tuple(greedy(model, 5, prefix=(4, 3))[0, :3].tolist()) == (START, 4, 3)
