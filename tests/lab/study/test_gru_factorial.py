"""The GRU factorial study: every distinct mutant once, without degenerate ones."""

import numpy as np
import pytest

from lmzoo.cells.base import CELLS
from lmzoo.data.corpus import open_corpus
from lmzoo.trainables.resolve import corpus_config, resolve
from sweeps.gru_factorial import STUDY
from tests.lab.analysis.factorial import MGU, mgu


@pytest.fixture(scope="module")
def resolved():
    fields = corpus_config(STUDY, STUDY.fields)
    corpus = open_corpus({**fields, "train": 10, "valid": 1, "test": 1})
    return corpus, [p for p in resolve(STUDY, corpus, fields) if not p.baseline]


def test_every_point_is_a_distinct_mutant_that_reads_its_input(resolved):
    _, points = resolved
    assert not any(point.aliases for point in points)
    rows = [type(point.model.cell).__qualname__ for point in points]
    assert (rows.count("MGU.Config"), rows.count("MGRU.Config")) == (92, 148)
    assert not any(CELLS.build(point.model.cell, 1, 2).input_blind for point in points)
    assert [points[0].label, points[92].label] == ["mgu wild type", "mgru wild type"]


def test_the_mutants_equal_those_of_an_independent_enumeration(resolved):
    _, points = resolved
    ours = {point.model.cell.cuts for point in points[:92]}
    expected = {frozenset(np.array(MGU)[pattern].tolist()) for pattern in mgu()}
    assert {frozenset(map(str, cuts)) for cuts in ours} == expected


def test_all_points_have_the_same_size_and_searched_fields(resolved):
    _, points = resolved
    assert {(point.model.width, point.model.emission.components) for point in points} == {(16, 16)}
    assert {tuple(point.search_space) for point in points} == {("recipe.lr",)}
