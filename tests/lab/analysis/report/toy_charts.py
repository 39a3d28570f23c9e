"""The charts of a toy study."""

from typing import Any

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.report.figure import figures
from tests.lab.analysis.toy_study import ToyStudy


def charts_of(toy: ToyStudy) -> dict[str, Any]:
    path = toy.write()
    ranked = study_ranking(path).frame
    return figures(load_study(path), ranked)
