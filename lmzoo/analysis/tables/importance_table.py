"""The importance of the searched fields of a study as text."""

from pathlib import Path

from lmzoo.analysis.records.load import load_study
from lmzoo.analysis.records.search_ranges import search_ranges
from lmzoo.analysis.records.tuning import read_tune_runs, run_settings, variance_between_points
from lmzoo.analysis.tables.columns import shown_columns, text_table
from lmzoo.analysis.tables.importance import importance_shares
from lmzoo.analysis.tables.optuna_export import export_to_optuna
from lmzoo.analysis.text.formatting import format_number, status_counts
from lmzoo.analysis.text.render import Report
from lmzoo.errors import writing


def study_importance(
    path: Path, *, point: str | None = None, at: int | None = None, export: Path | None = None
) -> Report:
    """Return the importance of the searched fields of the study in folder `path`.

    Args:
        path: the study's folder.
        point: label of the only point to include; None for all points.
        at: compare losses up to this epoch; None is the last that every run has reached.
        export: also write the tune runs to this file of Optuna.

    Raises:
        UserError: There are too few tune runs, or a name is unknown.
    """
    folder = load_study(path)
    tuning = read_tune_runs(folder, at, point)
    exported = None
    if export is not None:
        with writing(export):
            exported = export_to_optuna(folder, tuning, export)
    labels = set(tuning.runs["label"])
    frame = importance_shares(tuning, search_ranges(folder.study, run_settings(tuning), labels))
    columns = shown_columns("importance", "searched")
    legend = [
        "share: of the variance of losses within points, explained by this field alone (fANOVA); "
        "interactions of fields explain the rest; diverged runs have no loss",
    ]
    if len(frame) == 1:
        legend.append("only one field was searched, so no other field can have a share")
    if exported is not None:
        legend.append(f"{exported} runs written to {export} as Optuna study {folder.study['name']}")
    statuses = tuning.runs["status"]
    between = format_number(variance_between_points(tuning), ".0%")
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: lowest validation loss up to epoch {tuning.epoch} of "
            f"{len(statuses)} tune runs, of which {status_counts(statuses)}",
            f"variance between points: {between} of the variance of these losses",
        ),
        tables=(text_table("searched fields", frame.to_dicts(), columns, whole=True),),
        legend=tuple(legend),
        frame=frame,
    )
