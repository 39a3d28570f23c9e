"""Norms, neighbours and analogies of embeddings that are built to have them."""

import math

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.inspect.word_vectors import analogy, neighbours, norm_bands, token_vectors
from tests.models.equivalence import small

SIZE, COUNT = 6, 40


def vectors() -> torch.Tensor:
    return torch.randn(COUNT, SIZE, generator=torch.Generator().manual_seed(0))


def test_norms_that_follow_the_frequency_are_found() -> None:
    counts = torch.arange(COUNT).square()  # token 0 does not occur
    unit = torch.nn.functional.normalize(vectors(), dim=1)
    scaled = unit * (2 + counts.clamp_min(1).log())[:, None]
    scaled[0] = 1e3
    bands, correlation = norm_bands(scaled, counts, bands=4)
    assert correlation == pytest.approx(1, abs=1e-6)
    assert [band.tokens for band in bands] == [10, 10, 10, 9]
    assert (bands[0].most, bands[0].least, bands[-1].least) == (39**2, 30**2, 1)
    expected = sum(2 + math.log(n * n) for n in range(30, 40)) / 10
    assert bands[0].mean == pytest.approx(expected, abs=1e-5)
    _, against = norm_bands(1 / scaled.norm(dim=1, keepdim=True) * unit, counts)
    assert against < -0.8


def test_equal_norms_have_no_spread() -> None:
    unit = torch.nn.functional.normalize(vectors(), dim=1)
    bands, _ = norm_bands(unit, torch.arange(COUNT))
    assert all(band.spread == pytest.approx(0, abs=1e-6) for band in bands)


def test_neighbours_are_sorted_by_cosine_and_leave_out_the_word() -> None:
    table = vectors()
    found = neighbours(table, 3, count=COUNT)
    assert len(found) == COUNT - 1
    assert 3 not in dict(found)
    cosine = torch.nn.functional.cosine_similarity(table, table[3], dim=1)
    order = [i for i in cosine.argsort(descending=True).tolist() if i != 3]
    assert [word for word, _ in found] == order
    assert found[0][1] == pytest.approx(cosine[order[0]].item(), abs=1e-6)


def test_planted_parallelograms_are_solved() -> None:
    """Unit vectors at 0, 30, 90, 120, 60 and 260 degrees, whose lengths must not count."""
    angles = torch.tensor([0.0, 30, 90, 120, 60, 260]).deg2rad()
    lengths = torch.tensor([1, 5, 0.2, 9, 1, 1])
    table = torch.stack([angles.cos(), angles.sin()], dim=1) * lengths[:, None]
    best = analogy(table, 0, 1, 2, count=1)[0]  # 30 degrees are to 0 as 120 are to 90
    assert best[0] == 3
    assert analogy(table, 1, 0, 2, count=1)[0][0] == 4  # and 0 to 30 as 60 to 90
    assert not {0, 1, 2} & set(dict(analogy(table, 0, 1, 2, count=9)))


@pytest.mark.parametrize("name", ["lstm_lm", "gpt", "word2vec_cbow", "elmo", "pcfg", "hmm"])
def test_rows_with_an_embedding_table_have_vectors(name: str) -> None:
    model = small(name)
    if name == "pcfg":
        with pytest.raises(UserError, match="no table of token embeddings"):
            token_vectors(model)
        return
    assert token_vectors(model).shape[0] == model.task.vocab
