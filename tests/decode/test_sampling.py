"""Sampling: frequencies, temperature, top-k, ends and seeds; greedy decoding."""

import math
from collections import Counter

import pytest
import torch
from scipy import stats

from lmzoo.contract import END, PAD, START, LanguageModel
from lmzoo.decode import draw, is_end, sample
from tests.decode.toys import all_sequences, sharp_model

ROWS = {"lstm_mixture": 4.0, "transformer_decoder": 0.7, "unigram_mixture": 4.0}
"""Row -> factor of its weights; see `sharp_model`."""
DRAWS = 4000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def chi_squared_p(model: LanguageModel, **options: float) -> float:
    """Return the p-value of a χ² test that samples follow the model.

    Outcomes with an expected count below 5 are pooled.
    """
    tokens = sample(model, DRAWS, model.task.length, generator=generator(), **options)
    counts = Counter(without_pads(row) for row in tokens.tolist())
    expected = {key: DRAWS * math.exp(score) for key, score in all_sequences(model).items()}
    assert set(counts) <= set(expected)
    rare = [key for key, count in expected.items() if count < 5]
    pairs = [(counts[key], count) for key, count in expected.items() if count >= 5]
    pairs.append((sum(counts[key] for key in rare), sum(expected[key] for key in rare)))
    distance = sum((observed - count) ** 2 / count for observed, count in pairs if count)
    return stats.chi2.sf(distance, len(pairs) - 1)


def without_pads(row: list[int]) -> tuple[int, ...]:
    """Cut the sequence after its end token."""
    ends = [t for t, token in enumerate(row) if t and token in (END, PAD)]
    return tuple(row[: ends[0] + 1] if ends else row)


@pytest.mark.parametrize("name", ROWS)
def test_sample_frequencies_match_the_model(name):
    model = sharp_model(name, factor=ROWS[name])
    assert len(all_sequences(model)) == 2 + 2 * 2 + 4 * 4
    assert chi_squared_p(model) > 0.01
    assert chi_squared_p(model, temperature=1.0) > 0.01
    assert chi_squared_p(model, temperature=0.8) < 1e-6  # the test has the power to reject


@pytest.mark.parametrize(
    ("top", "drawn"),
    [
        (1, [3]),
        (2, [2, 3]),
        (9, [0, 1, 2, 3]),
    ],
)
def test_top_k_draws_the_k_most_probable_tokens(top, drawn):
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().expand(DRAWS, -1)
    assert draw(scores, top=top, generator=generator()).unique().tolist() == drawn


def test_top_k_draws_k_tokens_even_if_scores_tie():
    tied = torch.tensor([0.5, 0.25, 0.25, 0.0]).log().expand(DRAWS, -1)
    tokens = draw(tied, top=2, generator=generator())
    assert len(tokens.unique()) == 2
    share = (tokens == 0).double().mean().item()
    assert abs(share - 2 / 3) < 4 * (2 / 9 / DRAWS) ** 0.5


def test_temperature_is_an_exponent_of_the_probabilities():
    scores = torch.tensor([0.7, 0.2, 0.1]).log().expand(DRAWS, -1)
    share = draw(scores, temperature=2.0, generator=generator()).bincount(minlength=3) / DRAWS
    expected = torch.tensor([0.7, 0.2, 0.1]).sqrt()
    expected = expected / expected.sum()
    assert ((share - expected).abs() < 4 * (expected * (1 - expected) / DRAWS).sqrt()).all()


def test_pads_follow_an_end_and_the_seed_decides_the_sample():
    model = sharp_model("gru", vocab=6, length=8)
    tokens = sample(model, 200, 8, prefix=(4, 5), generator=generator())
    assert tokens[:, :3].equal(torch.tensor([START, 4, 5]).expand(200, -1))
    since_end = is_end(tokens[:, 3:]).int().cumsum(1).cumsum(1)  # 1 at the end itself
    assert (tokens[:, 3:][since_end > 1] == PAD).all()
    assert (since_end > 1).any()
    assert tokens.equal(sample(model, 200, 8, prefix=(4, 5), generator=generator()))
    assert not tokens.equal(sample(model, 200, 8, prefix=(4, 5), generator=generator(1)))
