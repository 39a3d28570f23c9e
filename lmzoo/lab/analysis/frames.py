"""The records of a study as polars frames: one row a run, and one row an epoch of a run.

    lmzoo.runs("gru_ablation").group_by("label").agg(pl.col("test").mean())

The commands that print tables and charts read the same runs. `rank` ranks points.
"""

import base64
import json
from pathlib import Path

import polars as pl
from polars import DataFrame, Series, String, col, lit

from lmzoo.base.arguments import called
from lmzoo.base.parts import is_complete
from lmzoo.lab.analysis.formatting import add_columns
from lmzoo.lab.analysis.load import StudyFolder, against, chosen_runs, load_study, point_labels
from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import ReportFrame
from lmzoo.lab.store.records import Named, find_study

NAMES = {
    "train_token": "train",
    "valid_token": "valid",
    "token": "test",
    "sentence": "test_sentence",
}
"""Column of events -> its name in these frames."""
LOSSES = ["train", "valid", "valid_sentence", "test", "test_sentence"]
ACCURACIES = ["accuracy", "sequence_accuracy"]
FACTS = [
    "parameters",
    "state_size",
    "flops",
    "score",
    "leaks",
    "program",
    "model",
    "corpus",
    "fingerprint",
    "vocab",
    "length",
    "floor_token",
    "floor_sentence",
    "ceiling",
]
"""Columns of `load_study`'s runs that are facts of the model or of its data."""


@called
def runs(study: Path | str | Named) -> DataFrame:
    """Return all runs of a study, one row a run; a run that two points share has a row for each.

    Args:
        study: A `Study`, its folder, a file of records, or its name (or the beginning) in `runs/`.

    Returns:
        A frame with these columns. A number that is not known is null.

        - `point`, `label`, `reference`: the point's id, its label (null if the study no longer has
          the point), and if it is the reference.
        - `stage`, `seed`, `chosen`: `tune` or `confirm`; the seed of the training; whether the run
          has the chosen setting of its point, so that `lmzoo rank` counts it.
        - one column a searched field, as `recipe.lr`.
        - `status`, `epochs`: `finished`, `pruned`, `diverged`, `failed` or null; epochs trained.
        - `train`, `valid`, `test`: losses in nats per token, or the study's own metric; the first
          two of the last epoch, the test of the weights of `best_epoch`. `valid_sentence` and
          `test_sentence` weigh every sentence equally. `accuracy` and `sequence_accuracy` of
          tasks are of the test split.
        - `seconds`, `parameters`, `state_size`, `flops` and other facts of the model and its data;
          `model` and `corpus` are their configs as JSON.
        - `run`, `folder`: its name, and its folder; null for runs of a file of records.

    Raises:
        UserError: There is no such study.
    """
    path = find_study(study)
    frame = run_frame(load_study(path))
    folder = lit(None, String)
    if path.is_dir():
        folder = lit(f"{path}/") + col("run")
    return frame.with_columns(folder=folder)


@called
def curves(study: Path | str | Named) -> DataFrame:
    """Return the epochs of all runs of a study, one row an epoch of a run.

    Args:
        study: A `Study`, its folder, a file of records, or its name (or the beginning) in `runs/`.

    Returns:
        A frame with `label`, `stage`, `seed`, `chosen` and the searched fields of `runs`; with
        `epoch`, the losses `train`, `valid` and `valid_sentence`, the validation accuracies of
        tasks, `seconds` and `tokens_per_second` of this epoch; and with `run`.

    Raises:
        UserError: There is no such study.
    """
    folder = load_study(find_study(study))
    columns = ["run", "point", "label", "stage", "seed", "chosen"]
    columns += _searched(folder)
    own = run_frame(folder).select(columns)
    epochs = _events(folder, "epoch").select(
        "run",
        "epoch",
        "train",
        "valid",
        "valid_sentence",
        "seconds",
        "tokens_per_second",
        accuracy="valid_accuracy",
        sequence_accuracy="valid_sequence_accuracy",
    )
    named = own.join(epochs, on="run")
    named = named.sort("label", "stage", "seed", "run", "epoch")
    return named.select(pl.exclude("run"), "run")


def run_frame(folder: StudyFolder) -> DataFrame:
    """Return the frame of `runs` without `folder`, in the order of the study's points."""
    study = folder.study
    points = point_labels(study).with_row_index("place")
    is_reference = col("point") == study.get("reference", "")
    points = points.with_columns(reference=is_reference)
    chosen = chosen_runs(study)
    losses = col("train", "valid", "valid_sentence")
    epochs = _events(folder, "epoch").group_by("run")
    epochs = epochs.agg(
        losses.sort_by("epoch").last(),
        pl.sum("seconds"),
        epochs=pl.max("epoch"),
    )
    # The tests that a ranking compares: the last ones within the budget.
    tests = _events(folder, "test")
    tests = tests.filter(col("epoch") <= study["budget"]["epochs"])
    tests = tests.filter(col("epoch") == pl.max("epoch"))
    tests = tests.select("run", "test", "test_sentence", "best_epoch", col(ACCURACIES))
    runs = folder.runs.collect()
    # A run that confirms several points has a row for each.
    of_points = pl.concat([runs.select(chosen.columns), chosen])
    of_points = of_points.unique(maintain_order=True)
    runs = of_points.join(runs.drop("point"), on="run")
    is_chosen = pl.struct("point", "run").is_in(chosen.to_struct().implode())
    runs = runs.with_columns(chosen=is_chosen)
    settings = list(map(json.loads, runs["setting"]))
    fields = []
    searched = _searched(folder)
    for name in searched:
        values = [setting.get(name) for setting in settings]
        fields.append(Series(name, values, strict=False))
    runs = add_columns(runs.with_columns(fields), points, "point")
    for own in (epochs, tests):
        runs = add_columns(runs, own, "run")
    is_confirm = col("stage") == "confirm"
    runs = runs.sort("place", is_confirm, "seed", "run", nulls_last=True)
    columns = ["point", "label", "reference", "stage", "seed", "chosen"]
    columns += searched + ["status", "epochs", "best_epoch"]
    columns += LOSSES + ACCURACIES + ["seconds"]
    columns += FACTS + ["run"]
    return runs.select(columns)


def _searched(folder: StudyFolder) -> list[str]:
    names = set()
    settings = folder.runs.select("setting").unique()
    for text in settings.collect()["setting"]:
        names.update(json.loads(text))
    return sorted(names)


def _events(folder: StudyFolder, event: str) -> DataFrame:
    events = folder.events.filter(event=event).drop("event")
    return events.rename(NAMES).collect()


class Ranking(ReportFrame):
    """The ranking of a study, one row for each point; `report` is that of `rank --explain`."""

    def _repr_html_(self, *, _from_series: bool = False) -> str:
        text = super()._repr_html_(_from_series=_from_series)
        if not is_complete("figures"):
            return text
        from lmzoo.lab.analysis.report.forest import forest_chart, forest_picture

        images = ""
        for part in self.partition_by(TABLE_KEYS, maintain_order=True):
            if forest_chart(part):
                picture = forest_picture(part).encode()
                # An image has its own styles, so that the notebook keeps its colours.
                data = base64.b64encode(picture).decode()
                images += f'<img src="data:image/svg+xml;base64,{data}">'
        return images + text


@called
def rank(
    study: Path | str | Named,
    *,
    unit: str = "token",
    margin: float | None = None,
    reference: str | None = None,
    after_training: bool = False,
) -> Ranking:
    """Return the ranking of a study, one row a point, the best first.

    Printed, it is the short form of `lmzoo rank`; in a notebook it also shows the forest plot.
    `lmzoo rank STUDY --format json` has the same columns (`lmzoo/lab/analysis/columns.py`).

    Args:
        study: A `Study`, its folder, a file of records, or its name (or the beginning) in `runs/`.
        unit: `token` or `sentence`: nats per token; `bpc` or `bpb`.
        margin: Difference in nats below which a point is negligible; None: the study's.
        reference: Compare with this point, by its label or its cut; None: the study's reference.
        after_training: Add what the same cuts cost trained models, as `lmzoo.ablate` measured it.

    Raises:
        UserError: There is no such study or point, or nothing can be ranked.
    """
    folder = load_study(find_study(study))
    folder = against(folder, reference)
    ranked = study_ranking(folder, unit=unit, margin=margin, after_training=after_training)
    return Ranking.of(ranked)
