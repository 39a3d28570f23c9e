"""A study on one HTML page: ranking, comparison, curves, interactions, audit, samples, commands."""

import base64
from pathlib import Path

from lmzoo.analysis.comparison import compare_points
from lmzoo.analysis.comparison_table import comparison_report
from lmzoo.analysis.curve_charts import curve_charts
from lmzoo.analysis.effects import estimate_effects
from lmzoo.analysis.heat_map import heat_maps
from lmzoo.analysis.html import Section, code_block, html_page, html_table, paragraphs, svg_figure
from lmzoo.analysis.load import StudyFolder, load_study
from lmzoo.analysis.mutants import read_mutants
from lmzoo.analysis.ranking import rank_points
from lmzoo.analysis.ranking_table import ranking_report
from lmzoo.analysis.render import Report
from lmzoo.analysis.report_best import audit_section, samples_section
from lmzoo.analysis.reproduce import reproduce_commands
from lmzoo.errors import UserError

HEAT_MAPS = {"epistasis.svg": "svg+xml", "epistasis.png": "png"}
"""Names of heat maps in a study's folder -> their image types."""


def render_report(
    path: Path, *, metric: str = "token", use_models: bool = True, data_dir: Path | None = None
) -> str:
    """Return the page of the study in folder `path`.

    Args:
        path: the study's folder.
        metric: `token` or `sentence`.
        use_models: sample from the best models and audit them, which loads the models.
        data_dir: folder of the corpus's files, for the samples.

    Raises:
        UserError: Nothing can be ranked, or a name is unknown.
    """
    folder = load_study(path)
    ranked = rank_points(folder.runs, folder.events, folder.study, metric=metric)
    ranking = ranking_report(folder, ranked)
    charts = "".join(map(svg_figure, curve_charts(folder, ranked, metric).values()))
    sections = [
        Section("Ranking", _report_body(ranking)),
        *_comparison(folder, metric),
        Section("Curves", charts or paragraphs(["no run has finished an epoch"])),
        *_interactions(folder, metric),
        Section("Audit", audit_section(folder, ranked, run=use_models)),
    ]
    if use_models:
        sections.append(Section("Samples", samples_section(path, folder, ranked, data_dir)))
    sections.append(Section("Reproduce", code_block(reproduce_commands(path, folder))))
    return html_page(ranking.heading[0], [f"study {folder.study['name']}"], sections)


def _report_body(report: Report) -> str:
    """Return a report as HTML, without the question, which is the title of the page."""
    tables = "".join(map(html_table, report.tables))
    return paragraphs(report.heading[1:]) + tables + paragraphs(report.legend)


def _comparison(folder: StudyFolder, metric: str) -> list[Section]:
    """Return the comparison over test sequences, if the runs stored their losses."""
    try:
        report = comparison_report(folder, compare_points(folder, metric=metric))
    except UserError:
        return []
    return [Section("Over seeds and sequences", _report_body(report))]


def _interactions(folder: StudyFolder, metric: str) -> list[Section]:
    """Return the heat map stored in the folder, else one of the study's mutants, if it has any."""
    body = _stored_heat_map(folder.path) or _heat_map(folder, metric)
    return [Section("Interactions", body)] if body else []


def _stored_heat_map(path: Path) -> str:
    for name, kind in HEAT_MAPS.items():
        file = path / name
        if file.is_file():
            data = base64.b64encode(file.read_bytes()).decode()
            source = f"data:image/{kind};base64,{data}"
            return f'<figure><img alt="interactions" src="{source}"></figure>'
    return ""


def _heat_map(folder: StudyFolder, metric: str) -> str:
    try:
        cells = read_mutants(folder.path, folder, metric)
    except UserError:  # there are no mutants, or the wild type is incomplete
        return ""
    frames = [frame for frame in map(estimate_effects, cells) if frame["effect"].count()]
    if not frames:  # no two mutants differ in one switch only
        return ""
    lines = [f"{metric} loss, means over {cells[0].losses.shape[1]} seeds"]
    lines += [
        f"{cell.cell}: mutants left out because a seed is missing: {len(cell.incomplete)} "
        "(`lmzoo epistasis` lists them)"
        for cell in cells
        if cell.incomplete
    ]
    return paragraphs(lines) + svg_figure(heat_maps(frames, "effects of the switches"))
