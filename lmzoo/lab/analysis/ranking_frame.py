"""A ranking in Python: a polars frame that prints its answer, and draws it in a notebook."""

import base64
import html
from pathlib import Path

import polars as pl

from lmzoo.lab.analysis.records.load import load_study
from lmzoo.lab.analysis.tables.brief import brief_report
from lmzoo.lab.analysis.tables.ranking import TABLE_KEYS
from lmzoo.lab.analysis.tables.ranking_table import study_ranking
from lmzoo.lab.analysis.text.render import render

WIDTH = 80


class Ranking(pl.DataFrame):
    """The ranking of a study, one row for each point; what is selected of it is a plain frame."""

    text: str
    """The short form of `lmzoo rank`."""

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self, *, _from_series: bool = False) -> str:
        del _from_series
        from lmzoo.lab.analysis.charts.forest import forest_chart, forest_picture

        parts = self.partition_by(TABLE_KEYS, maintain_order=True)
        pictures = [forest_picture(part) for part in parts if forest_chart(part) is not None]
        # An image has its own styles, so that the notebook keeps its colours.
        data = [base64.b64encode(picture.encode()).decode() for picture in pictures]
        images = "".join(f'<img src="data:image/svg+xml;base64,{text}">' for text in data)
        return f"{images}<pre>{html.escape(self.text)}</pre>"


def read_ranking(path: Path) -> Ranking:
    """Return the ranking of the study in a folder.

    Raises:
        UserError: Nothing can be ranked.
    """
    folder = load_study(path)
    report = study_ranking(folder)
    ranking = Ranking(report.frame)
    ranking.text = render(brief_report(report, folder, path), "table", width=WIDTH)
    return ranking
