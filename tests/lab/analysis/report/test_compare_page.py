"""The page of two studies: their points side by side."""

import json
import math
import re

import polars as pl
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.report.compare_page import matched_rows, render_two, seed_losses
from tests.lab.analysis.toy_study import ToyStudy


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


def test_points_with_the_same_seeds_and_data_are_paired(studies):
    """The second study is 0.5 above the first one at every seed."""
    text = render_two(studies)
    assert "+0.500" in text
    assert "+0.500 ±" not in text
    assert "1 of 1 differences are paired" in text
    first, second = map(ranked, studies)
    seeds = [seed_losses(load_study(path), "token") for path in studies]
    frames = [frame.with_columns(tuning_sd=pl.lit(None, pl.Float64)) for frame in (first, second)]
    (row,) = matched_rows(*frames, seeds)
    assert row["paired"]
    assert row["low"] == pytest.approx(0.5) == row["high"]


def test_the_tuning_widens_a_paired_interval_where_settings_differ(studies):
    seeds = [seed_losses(load_study(path), "token") for path in studies]
    first, second = (ranked(path).with_columns(tuning_sd=pl.lit(0.1)) for path in studies)
    second = second.with_columns(setting=pl.lit("{}"))
    (row,) = matched_rows(first, second, seeds)
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * 0.1 * 2**0.5, rel=0.01)


def test_points_with_other_seeds_or_data_are_not_paired(studies, tmp_path):
    first, second = map(ranked, studies)
    seeds = [seed_losses(load_study(path), "token") for path in studies]
    other = second.with_columns(fingerprint=pl.lit("beef"))
    assert not matched_rows(first, other, seeds)[0]["paired"]
    toy = ToyStudy(tmp_path / "third")
    toy.add_point("full", [2.5, 2.6])
    text = render_two([studies[0], toy.write()])
    assert "0 of 1 differences are paired" in text


def test_labels_have_the_order_of_the_ranking(tmp_path):
    paths = []
    for name in ("first", "second"):
        toy = ToyStudy(tmp_path / name)
        for point, loss in (("full", 2.0), ("zeta", 1.0), ("alpha", 3.0)):
            toy.add_point(point, [loss, loss + 0.1])
        paths.append(toy.write())
    spec = json.loads(re.findall(r"application/json\">(.*?)</script>", render_two(paths))[0])
    orders = [layer["encoding"]["y"]["sort"] for layer in spec["layer"] if "y" in layer["encoding"]]
    assert orders == [["cut zeta", "cut full", "cut alpha"]] * 2


def test_common_points_are_compared_without_pairing(studies):
    first, second = map(ranked, studies)
    (row,) = matched_rows(first, second)
    assert row["difference"] == pytest.approx(0.5)
    half = [x["high"] - x["loss"] for x in (row["a"], row["b"])]
    assert row["high"] - row["difference"] == pytest.approx(math.hypot(*half))
    assert not row["paired"]
    assert "The studies have the same options." in render_two(studies)


def test_studies_without_a_common_point_are_refused(studies, tmp_path):
    toy = ToyStudy(tmp_path / "third")
    toy.add_point("other", [1.0, 1.1])
    with pytest.raises(UserError, match="have no ranked point of the same label"):
        render_two([studies[0], toy.write()])
