"""Sampling: frequencies, temperature, top-k, ends and seeds; greedy decoding."""

import math
from collections import Counter

import torch
from scipy import stats

from lmzoo.contract import END, PAD, START
from lmzoo.decode import draw, is_end, sample
from tests.cases import parametrize
from tests.decode.toys import all_sequences, sharp_model

ROWS = {"lstm_mixture": 4.0, "transformer_decoder": 0.7, "unigram_mixture": 4.0}
"""Row -> factor of its weights; see `sharp_model`."""
DRAWS = 4000


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def chi_squared_p(model, **options):
    """Return the p-value of a χ² test that samples follow the model.

    Outcomes with an expected count below 5 are pooled.
    """
    length = model.task.length
    options |= {"generator": generator()}
    tokens = sample(model, DRAWS, length, **options)
    observed = Counter(without_pads(row) for row in tokens.tolist())
    expected = {}
    for sequence, score in all_sequences(model).items():
        expected[sequence] = DRAWS * math.exp(score)
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
            difference = observed[key] - expectation
            distance += difference**2 / expectation
    if pooled_expectation:
        difference = pooled_count - pooled_expectation
        distance += difference**2 / pooled_expectation
    # One degree less: the counts add up to the draws.
    return stats.chi2.sf(distance, outcomes - 1)


def without_pads(row):
    """Cut the sequence after its end token; the first token is `<start>`."""
    words = row[1:]
    for size, token in enumerate(words, start=2):
        if token in (END, PAD):
            return tuple(row[:size])
    return tuple(row)


@parametrize("name", ROWS)
def test_sample_frequencies_match_the_model(name):
    model = sharp_model(name, factor=ROWS[name])
    sequences = all_sequences(model)
    # An end at once, after one word, or any token after two words.
    assert len(sequences) == 2 + 2 * 2 + 4 * 4
    assert chi_squared_p(model) > 0.01
    assert chi_squared_p(model, temperature=1.0) > 0.01


@parametrize("name", ROWS)
def test_frequencies_at_another_temperature_do_not_match(name):
    """So the test can reject."""
    model = sharp_model(name, factor=ROWS[name])
    assert chi_squared_p(model, temperature=0.8) < 1e-6


DRAWN = {1: [3], 2: [2, 3], 9: [0, 1, 2, 3]}
"""The tokens that each top-k draws."""


def repeated(*probabilities):
    """Return as many equal distributions as there are draws."""
    log_p = torch.tensor(probabilities).log()
    return log_p.expand(DRAWS, -1)


@parametrize(("top", "drawn"), DRAWN.items())
def test_top_k_draws_the_k_most_probable_tokens(top, drawn):
    scores = repeated(0.1, 0.2, 0.3, 0.4)
    tokens = draw(scores, top=top, generator=generator())
    assert tokens.unique().tolist() == drawn


def test_top_k_draws_k_tokens_even_if_scores_tie():
    tied = repeated(0.5, 0.25, 0.25, 0.0)
    tokens = draw(tied, top=2, generator=generator())
    assert len(tokens.unique()) == 2
    assert_share(tokens, 0, 2 / 3)


def assert_share(tokens, token, expected):
    """Assert that a token is drawn as often as expected, within four standard errors."""
    is_drawn = (tokens == token).double()
    share = is_drawn.mean().item()
    variance = expected * (1 - expected) / len(tokens)
    assert abs(share - expected) < 4 * math.sqrt(variance)


def test_temperature_is_an_exponent_of_the_probabilities():
    p = (0.7, 0.2, 0.1)
    scores = repeated(*p)
    tokens = draw(scores, temperature=2.0, generator=generator())
    # Temperature 2 is the exponent ½.
    roots = [math.sqrt(share) for share in p]
    for token, root in enumerate(roots):
        assert_share(tokens, token, root / sum(roots))


def sampled(seed=0):
    model = sharp_model("gru", vocab=6, length=8)
    options = {"prefix": (4, 5), "generator": generator(seed)}
    return sample(model, 200, 8, **options)


def test_a_sample_begins_with_the_prefix():
    begun = sampled()[:, :3]
    different = begun.unique(dim=0).tolist()
    assert different == [[START, 4, 5]]


def test_pads_follow_an_end():
    tokens = sampled()[:, 3:]
    ended = is_end(tokens).int().cumsum(1)
    after = ended.cumsum(1) > 1  # it is 1 at the end itself
    assert (tokens[after] == PAD).all()
    assert after.any()


def test_the_seed_decides_the_sample():
    first = sampled()
    assert sampled().equal(first)
    assert not sampled(seed=1).equal(first)
