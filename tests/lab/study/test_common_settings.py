"""A setting for all points may not change what the points compare."""

import pytest

from lmzoo import Point, Study
from lmzoo.base.errors import UserError
from lmzoo.trainables.resolve import check_settings

CUTS = (Point("wild type", "DLM46"), Point("cut 4", "DLM46", {"cell.cuts": [4]}))
CELLS = (Point("LSTM", "DLM26"), Point("GRU", "DLM44"))
WHOLE = (Point("MGRU", "DLM47"), Point("cut", "DLM47", {"cell": {"name": "mgru", "mutations": 4}}))


def study(points: tuple[Point, ...]) -> Study:
    return Study(name="toy", question="?", points=points)


def test_a_setting_that_replaces_what_points_compare_is_refused() -> None:
    sizes = (Point("E=8", "DLM46", {"width": 8}), Point("E=16", "DLM46"))
    for points, path, label in [
        (CUTS, "model.cell", "'cut 4'"),
        (CUTS, "model.cell.cuts", "'cut 4'"),
        (CELLS, "model.cell", "'LSTM', 'GRU'"),
        (WHOLE, "model.cell.carry", "'cut'"),
        (sizes, "model.width", "'E=8'"),
    ]:
        with pytest.raises(UserError, match=rf"--set {path}: .*\({label}\); drop the option"):
            check_settings(study(points), {path: 1})


def test_other_settings_are_accepted() -> None:
    for path in ("model.width", "model.norm", "recipe.lr", "corpus.cell", "model.cellar"):
        check_settings(study(CUTS), {path: 1})
    check_settings(study(CELLS), {"model.emission.components": 1})
    check_settings(study(CUTS[:1]), {"model.cell": 1})
