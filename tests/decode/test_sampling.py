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
    observed = Counter(without_pads(row) for row in tokens.tolist())
    expected = {key: DRAWS * math.exp(score) for key, score in all_sequences(model).items()}
    assert set(observed) <= set(expected)
    pooled_count = 0
    pooled_expectation = 0.0
    distance = 0.0
    outcomes = 1
    for key, expectation in expected.items():
        if expectation < 5:
            pooled_count += observed[key]
            pooled_expectation += expectation
        else:
            outcomes += 1
            distance += (observed[key] - expectation) ** 2 / expectation
    if pooled_expectation:
        distance += (pooled_count - pooled_expectation) ** 2 / pooled_expectation
    return stats.chi2.sf(distance, outcomes - 1)


def without_pads(row: list[int]) -> tuple[int, ...]:
    """Cut the sequence after its end token; the first token is `<start>`."""
    for t, token in enumerate(row[1:], start=1):
        if token in (END, PAD):
            return tuple(row[: t + 1])
    return tuple(row)


@pytest.mark.parametrize("name", ROWS)
def test_sample_frequencies_match_the_model(name):
    model = sharp_model(name, factor=ROWS[name])
    assert len(all_sequences(model)) == 2 + 2 * 2 + 4 * 4
    assert chi_squared_p(model) > 0.01
    assert chi_squared_p(model, temperature=1.0) > 0.01


@pytest.mark.parametrize("name", ROWS)
def test_frequencies_at_another_temperature_do_not_match(name):
    """So the test can reject."""
    model = sharp_model(name, factor=ROWS[name])
    assert chi_squared_p(model, temperature=0.8) < 1e-6


@pytest.mark.parametrize(("top", "drawn"), [(1, [3]), (2, [2, 3]), (9, [0, 1, 2, 3])])
def test_top_k_draws_the_k_most_probable_tokens(top, drawn):
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().expand(DRAWS, -1)
    tokens = draw(scores, top=top, generator=generator())
    assert tokens.unique().tolist() == drawn


def test_top_k_draws_k_tokens_even_if_scores_tie():
    tied = torch.tensor([0.5, 0.25, 0.25, 0.0]).log().expand(DRAWS, -1)
    tokens = draw(tied, top=2, generator=generator())
    assert len(tokens.unique()) == 2
    assert_share(tokens, 0, 2 / 3)


def assert_share(tokens: torch.Tensor, token: int, expected: float):
    """Assert that a token is drawn as often as expected, within four standard errors."""
    share = (tokens == token).double().mean().item()
    error = (expected * (1 - expected) / len(tokens)) ** 0.5
    assert abs(share - expected) < 4 * error


def test_temperature_is_an_exponent_of_the_probabilities():
    p = torch.tensor([0.7, 0.2, 0.1])
    tokens = draw(p.log().expand(DRAWS, -1), temperature=2.0, generator=generator())
    # Temperature 2 is the exponent ½.
    roots = p.sqrt()
    for token, expected in enumerate((roots / roots.sum()).tolist()):
        assert_share(tokens, token, expected)


def sampled(seed: int = 0) -> torch.Tensor:
    model = sharp_model("gru", vocab=6, length=8)
    return sample(model, 200, 8, prefix=(4, 5), generator=generator(seed))


def test_a_sample_begins_with_the_prefix():
    assert sampled()[:, :3].unique(dim=0).tolist() == [[START, 4, 5]]


def test_pads_follow_an_end():
    tokens = sampled()[:, 3:]
    since_end = is_end(tokens).int().cumsum(1).cumsum(1)  # 1 at the end itself
    assert (tokens[since_end > 1] == PAD).all()
    assert (since_end > 1).any()


def test_the_seed_decides_the_sample():
    assert sampled().equal(sampled())
    assert not sampled().equal(sampled(seed=1))
