"""Draws are the model's: their frequencies, their temperature, their ends."""

import math
from collections import Counter

import pytest
import torch

from lmzoo.contract import END, PAD, START, LanguageModel
from lmzoo.decode.ancestral import ancestral, draw
from lmzoo.decode.greedy import greedy
from lmzoo.decode.start import ends
from tests.decode.toys import every_ending, sharp

ROWS = {"lstm_mixture": 4.0, "transformer_decoder": 0.7, "unigram_mixture": 4.0}
"""Rows, and how sharp they are made."""
DRAWS = 4000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def chance(model: LanguageModel, **how: float) -> float:
    """P(a χ² as large | the draws are the model's), outcomes expected less than 5 times as one."""
    tokens = ancestral(model, DRAWS, model.task.length, generator=seeded(), **how)
    drawn = Counter(cut(row) for row in tokens.tolist())
    expected = {key: DRAWS * math.exp(score) for key, score in every_ending(model).items()}
    assert set(drawn) <= set(expected)
    rare = [key for key, count in expected.items() if count < 5]
    pairs = [(drawn[key], count) for key, count in expected.items() if count >= 5]
    pairs.append((sum(drawn[key] for key in rare), sum(expected[key] for key in rare)))
    distance = sum((found - count) ** 2 / count for found, count in pairs if count)
    half = torch.tensor([(len(pairs) - 1) / 2, distance / 2], dtype=torch.float64)
    return torch.special.gammaincc(half[0], half[1]).item()


def cut(row: list[int]) -> tuple[int, ...]:
    """The sequence without the pads behind its end."""
    stops = [t for t, token in enumerate(row) if t and token in (END, PAD)]
    return tuple(row[: stops[0] + 1] if stops else row)


@pytest.mark.parametrize("name", ROWS)
def test_frequencies_are_the_models(name: str) -> None:
    model = sharp(name, factor=ROWS[name])
    assert len(every_ending(model)) == 2 + 2 * 2 + 4 * 4
    assert chance(model) > 0.01
    assert chance(model, temperature=1.0) > 0.01
    assert chance(model, temperature=0.8) < 1e-6  # so few draws tell them apart


def test_the_list_of_all_endings_is_a_distribution() -> None:
    for name in ROWS:
        assert sum(map(math.exp, every_ending(sharp(name)).values())) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ROWS)
def test_a_low_temperature_is_greedy(name: str) -> None:
    model = sharp(name, vocab=6, length=6)
    cold = ancestral(model, 20, 6, temperature=1e-3, generator=seeded())
    assert cold.equal(greedy(model, 6).expand(20, -1)[:, : cold.shape[1]])


def test_only_the_likeliest_are_drawn_even_among_equals() -> None:
    tied, plain = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]]).log()
    drawn = draw(tied.expand(DRAWS, -1), top=2, generator=seeded())
    assert len(drawn.unique()) == 2
    share = (drawn == 0).double().mean().item()
    assert abs(share - 2 / 3) < 4 * (2 / 9 / DRAWS) ** 0.5
    assert draw(plain.expand(DRAWS, -1), top=2, generator=seeded()).unique().tolist() == [2, 3]
    assert draw(plain.expand(DRAWS, -1), top=1, generator=seeded()).unique().tolist() == [3]
    assert len(draw(plain.expand(DRAWS, -1), top=9, generator=seeded()).unique()) == 4


def test_a_temperature_raises_to_a_power() -> None:
    scores = torch.tensor([0.7, 0.2, 0.1]).log().expand(DRAWS, -1)
    drawn = draw(scores, temperature=2.0, generator=seeded()).bincount(minlength=3) / DRAWS
    expected = torch.tensor([0.7, 0.2, 0.1]).sqrt()
    expected = expected / expected.sum()
    assert ((drawn - expected).abs() < 4 * (expected * (1 - expected) / DRAWS).sqrt()).all()


def test_nothing_follows_an_end_and_seeds_decide() -> None:
    model = sharp("gru", vocab=6, length=8)
    tokens = ancestral(model, 200, 8, prefix=(4, 5), generator=seeded())
    assert tokens[:, :3].equal(torch.tensor([START, 4, 5]).expand(200, -1))
    over = ends(tokens[:, 3:]).int().cumsum(1).cumsum(1)  # 1 at the end itself
    assert (tokens[:, 3:][over > 1] == PAD).all()
    assert (over > 1).any()
    assert tokens.equal(ancestral(model, 200, 8, prefix=(4, 5), generator=seeded()))
    assert not tokens.equal(ancestral(model, 200, 8, prefix=(4, 5), generator=seeded(1)))
