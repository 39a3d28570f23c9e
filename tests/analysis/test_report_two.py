"""The page of two studies: their points side by side."""

import math

import pytest

from lmzoo.analysis.load import load_study
from lmzoo.analysis.ranking import rank_points
from lmzoo.analysis.report.two import matched_rows, render_two
from lmzoo.errors import UserError
from tests.analysis.toy_study import ToyStudy


@pytest.fixture
def studies(tmp_path):
    paths = []
    for name, shift in (("first", 0.0), ("second", 0.5)):
        toy = ToyStudy(tmp_path / name)
        toy.add_point("full", [2.0 + shift, 2.1 + shift, 2.3 + shift])
        toy.add_point(f"only {name}", [3.0, 3.1, 3.2])
        paths.append(toy.write())
    return paths


def ranked(path):
    folder = load_study(path)
    return rank_points(folder.runs, folder.events, folder.study)


def test_common_points_are_compared_without_pairing(studies):
    first, second = map(ranked, studies)
    (row,) = matched_rows(first, second)
    assert row["difference"] == pytest.approx(0.5)
    half = [x["high"] - x["loss"] for x in (row["a"], row["b"])]
    assert row["high"] - row["difference"] == pytest.approx(math.hypot(*half))
    text = render_two(studies)
    assert "+0.500 ±" in text
    assert "The studies have the same options." in text


def test_studies_without_a_common_point_are_refused(studies, tmp_path):
    toy = ToyStudy(tmp_path / "third")
    toy.add_point("other", [1.0, 1.1])
    with pytest.raises(UserError, match="have no ranked point of the same label"):
        render_two([studies[0], toy.write()])
