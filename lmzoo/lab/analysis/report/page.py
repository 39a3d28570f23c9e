"""The sections of a study's page: answer, ranking, curves, search, what was spent.

Charts need the extra `figures`. Without it the page has all texts and tables, and says so.
"""

from pathlib import Path

from polars import DataFrame

from lmzoo.base.parts import is_complete
from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.ranking_table import TITLE, study_ranking
from lmzoo.lab.analysis.render import Report, render
from lmzoo.lab.analysis.report.facts import cost_line, recipe_section
from lmzoo.lab.analysis.report.html import (
    Section,
    chart_figure,
    download_link,
    folded,
    html_page,
    html_table,
    paragraphs,
)
from lmzoo.lab.store.records import find_study

CHARTS = {
    "Learning curves": "curves",
    "Seeds and cost": ("seeds", "cost-"),
    "Factors": "factors",
    "The search": ("importance", "tuning-"),
}
"""Section -> first letters of the names of its charts in `curve_charts`; the search is folded."""
NO_CHARTS = "The page has no charts: the extra `figures` of lmzoo draws them."


def render_report(study: Path | str, *, unit: str = "token") -> str:
    """Return the page of a study.

    Args:
        study: its folder, a file of records, or its name (or the beginning) in `runs/`.
        unit: as `lmzoo.rank` has it.

    A `UserError` says that nothing can be ranked, or that a name is unknown.
    """
    path = find_study(study)
    folder = load_study(path)
    ranking = study_ranking(folder, unit=unit)
    ranked = ranking.frame
    has_charts = is_complete("figures")
    sections = [Section("Ranking", _ranking(folder, ranking))]
    lead = paragraphs([" ".join(ranking.lead)], "lead")
    # The gravest ones stand in `ranking.lead`.
    lead += paragraphs(ranking.warnings[ranking.grave :])
    if has_charts:
        sections += _curves(folder, ranked)
        lead += _forests(folder, ranked)
    else:
        lead += paragraphs([NO_CHARTS])
    sections.append(Section("Reproduce", recipe_section(path, folder)))
    # Below the plot, so that a phone shows the plot on its first screen.
    lead += paragraphs([ranking.next_line, cost_line(folder)])
    return html_page(ranking.question, lead, sections)


def _forests(folder: StudyFolder, ranked: DataFrame) -> str:
    # The extra `figures` may be missing.
    from lmzoo.lab.analysis.report.forest import forest_charts
    from lmzoo.lab.analysis.report.two_costs import two_costs_chart

    charts = forest_charts(ranked)
    two_costs = two_costs_chart(folder, ranked)
    if two_costs is not None:
        charts.append(two_costs)
    return "".join(map(chart_figure, charts))


def _ranking(folder: StudyFolder, report: Report) -> str:
    """Return the tables, and the table as a file."""
    left = dict(report.frame.select("label", "equations").iter_rows())
    equations = left | {f"{label} ≡": lines for label, lines in left.items()}
    tables = ""
    for table in report.tables:
        kind = ""
        # Not by the column of losses, which has the name of the user's metric.
        if table.header[0] == "rank":
            kind = "sortable"
        if table.title.startswith(TITLE):
            tables += folded(table.title, html_table(table, kind=kind))
        else:
            tables += html_table(table, kind=kind, notes=equations)
    if any(left.values()):
        note = (
            "Below a point is what it changes in the equations of its cell. The command lmzoo "
            "describe prints these equations and the number of each cut."
        )
        tables = paragraphs([note], "text") + tables
    csv = download_link(render(report, "csv"), f"{folder.study['name']}.csv")
    notes = folded("Notes on the columns", paragraphs(report.heading + report.closing))
    return tables + csv + notes


def _curves(folder: StudyFolder, ranked: DataFrame) -> list[Section]:
    from lmzoo.lab.analysis.report.curve_charts import curve_charts

    charts = curve_charts(folder, ranked)
    sections = []
    for title, start in CHARTS.items():
        body = ""
        for name, chart in charts.items():
            if name.startswith(start):
                body += chart_figure(chart)
        if body:
            # The first charts are open, the others a click away.
            sections.append(Section(title, body, folded=bool(sections)))
    return sections
