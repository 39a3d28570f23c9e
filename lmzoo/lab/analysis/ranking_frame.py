"""A ranking in Python: a polars frame that prints its answer, and draws it in a notebook."""

import base64
import html
from functools import cached_property
from pathlib import Path

import polars as pl

from lmzoo.lab.analysis.records.load import StudyFolder, load_study
from lmzoo.lab.analysis.records.units import TextSizes
from lmzoo.lab.analysis.tables.brief import brief_report
from lmzoo.lab.analysis.tables.ranking import TABLE_KEYS
from lmzoo.lab.analysis.tables.ranking_table import study_ranking
from lmzoo.lab.analysis.text.render import Report, render
from lmzoo.lab.store.studies import find_study

WIDTH = 80


class Ranking(pl.DataFrame):
    """The ranking of a study, one row for each point; what is selected of it is a plain frame."""

    report: Report
    """The tables of `lmzoo rank --explain`."""
    read: tuple[StudyFolder, Path]

    @cached_property
    def brief(self) -> Report:
        """The short form of `lmzoo rank`."""
        return brief_report(self.report, *self.read)

    def __str__(self) -> str:
        return render(self.brief, "table", width=WIDTH)

    __repr__ = __str__

    def _repr_html_(self, *, _from_series: bool = False) -> str:
        del _from_series
        from lmzoo.lab.analysis.charts.forest import forest_chart, forest_picture

        parts = self.partition_by(TABLE_KEYS, maintain_order=True)
        pictures = [forest_picture(part) for part in parts if forest_chart(part) is not None]
        # An image has its own styles, so that the notebook keeps its colours.
        data = [base64.b64encode(picture.encode()).decode() for picture in pictures]
        images = "".join(f'<img src="data:image/svg+xml;base64,{text}">' for text in data)
        return f"{images}<pre>{html.escape(str(self))}</pre>"


def rank(
    study: Path | str,
    *,
    unit: str = "token",
    at: int | None = None,
    margin: float | None = None,
    measured: TextSizes | None = None,
) -> Ranking:
    """Return the ranking of a study, one row a point, the best first.

    Printed, it is the short form of `lmzoo rank`; in a notebook it also shows the forest plot.
    `lmzoo rank STUDY --format json` has the same columns (`tables/columns.py`).

    Args:
        study: Its folder, a file of records, or its name (or the beginning) in `runs/`.
        unit: `token` or `sentence`: nats per token; `bpc`, `bpb`, `ppl` or `wppl`.
        at: Rank by the validation loss at this epoch instead of the test loss.
        margin: Difference in nats below which a point is negligible; None: the study's.
        measured: Sizes of the test texts, for bits of records that have no sizes.

    Raises:
        UserError: There is no such study, or nothing can be ranked.
    """
    path = find_study(study)
    folder = load_study(path)
    report = study_ranking(folder, unit=unit, at=at, margin=margin, measured=measured)
    ranking = Ranking(report.frame)
    ranking.report, ranking.read = report, (folder, path)
    return ranking
