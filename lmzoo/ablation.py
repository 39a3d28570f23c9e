"""Cut the parts of trained models: `lmzoo.ablate`, and the command `lmzoo ablate`.

Results are lines of `ablations.ndjson` in the folder of the runs, so that a second call measures
what is missing only. `lmzoo/train/ablation.py` says what is measured, `lmzoo/lab/analysis/
after_training.py` how means are taken.
"""

import itertools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from lmzoo.base.arguments import called, path, whole
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.kernels.device import best_device
from lmzoo.lab.analysis.after_training import Ablation, ablation_report, read_lines
from lmzoo.lab.analysis.load import chosen_runs, load_study
from lmzoo.lab.cli.run_names import find_studied
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.archive import restore_run
from lmzoo.lab.store.labels import find_point
from lmzoo.lab.store.records import ABLATIONS, CONFIG, PROGRAM, RunFolder, record_line
from lmzoo.lab.study.study import Study
from lmzoo.train.ablation import (
    TRAINED,
    WAYS,
    WHOLE,
    ZEROED,
    Cut,
    Subject,
    config_cut,
    extra_data,
    losses,
    module_cuts,
)
from lmzoo.train.cut_weights import Variant, differs_in_cuts, variants
from lmzoo.train.recipe import stored_recipe
from lmzoo.train.trained import TrainedRun, load_run

KEYS = ("run", "epoch", "cut", "way", "steps")
"""What a line of results is known by."""
SHARE = 0.05
"""Further steps after a cut, as a share of those of the training."""


@dataclass(frozen=True)
class _Point:
    """The trained models of a point, and the other points of its study."""

    folder: Path
    label: str
    runs: Sequence[str]
    others: Mapping[str, Fields] = field(default_factory=dict)
    """Label -> config of its model."""
    left_out: list[str] = field(default_factory=list)
    """Runs without a model, and why."""


@called
def ablate(
    trained: Path | str | Study,
    *,
    pairs: bool = False,
    steps: int | None = None,
    data_dir: Path | None = None,
) -> Ablation:
    """Cut every part of trained models, and return what each cut costs on the test split.

    The cuts are the named ones of the model's config, those of the other points of the study, and,
    of a model without named cuts, those of `lmzoo.cuts`. A call measures what is missing only.

    Args:
        trained: A study or its name (its reference), STUDY:POINT, or the folder of a run.
        pairs: Cut every pair of parts, too.
        steps: Steps for which cut models are trained on; None: 5 % of those of the training.
        data_dir: Folder of the corpus files; None downloads them.

    Returns:
        One row a cut, with the mean cost and its interval (`_low`, `_high`) in nats per token:
        `zero`, `mean`, `other` and `trained`, see `docs/how/ablate.md`.

    Raises:
        UserError: There is no such study, or nothing that can be cut.
    """
    if steps is not None:
        steps = whole("steps", steps, 1)
    if isinstance(trained, Study):
        trained = trained.name
    point = _find(path("trained", trained))
    runs = _load(point, data_dir)
    # All runs of a point have the same corpus.
    corpus = runs[0].corpus.to(best_device())
    subjects = [_subject(run) for run in runs]
    if steps is None:
        steps = max(1, round(SHARE * runs[0].state["steps"]))
    found, refused = _cuts(point, subjects[0], corpus, pairs=pairs)
    _measure(point.folder, subjects, found, steps, corpus)
    # The file has the results of other points and other calls, too.
    of_models = pl.col("run").is_in([subject.run for subject in subjects])
    of_cuts = pl.col("cut").is_in([WHOLE.label] + [cut.label for cut in found])
    lines = read_lines(point.folder).filter(of_models & of_cuts)
    heading = [
        f"{point.label}: what each cut costs trained models, nats per token of the test split; "
        "means over seeds, 95 % intervals"
    ]
    for reason in point.left_out + refused:
        heading.append(f"left out: {reason}")
    return Ablation.of(ablation_report(lines, steps, tuple(heading)))


def _find(name: str) -> _Point:
    """Return the trained models that a name means."""
    folder = restore_run(Path(name).parent, Path(name).name)
    # The folder of a run; a study has none.
    if (folder / CONFIG).exists():
        return _Point(folder.parent, f"run {folder.name}", [folder.name])
    study, label = find_studied(name)
    # A table of records can be ranked, but has no models.
    if not study.is_dir():
        raise UserError(f"{study} is not a folder of runs, so it has no weights; give a folder")
    content = load_study(study)
    points = content.study["points"]
    reference = content.study.get("reference")
    chosen = points[0]
    for point in points:
        if point["id"] == reference:
            chosen = point
    if label:
        chosen = find_point(points, label)
    models = {
        point_id: json.loads(model)
        for point_id, model in content.runs.select("point", "model").collect().iter_rows()
    }
    others = {point["label"]: models[point["id"]] for point in points if point["id"] in models}
    runs = [run for point_id, run in chosen_runs(content.study).rows() if point_id == chosen["id"]]
    return _Point(study, chosen["label"], runs, others)


def _load(point: _Point, data_dir: Path | None) -> list[TrainedRun]:
    """Open the models of a point; those without weights are named, and left out."""
    found = []
    for name in point.runs:
        folder = restore_run(point.folder, name)
        # Before the weights are loaded.
        config = RunFolder(folder).config
        if config is not None and PROGRAM in config:
            raise UserError(
                f"{point.label} trains a {config[PROGRAM]}, whose parts are not known; cut a row "
                "of the zoo, or cut your module by lmzoo.apply_cut"
            )
        try:
            run = load_run(folder, data_dir)
        except UserError as error:
            point.left_out.append(f"{name}: {error}")
            continue
        # A ranking leaves diverged runs out of its means, too.
        if run.state["record"]["valid_token"] is None:
            point.left_out.append(f"{name} diverged")
        else:
            found.append(run)
    if not found:
        reason = "it has no confirm run yet; run its sweep again"
        if point.left_out:
            # The first reason is enough: the others are mostly the same.
            reason = point.left_out[0]
        raise UserError(f"{point.folder}, {point.label}: no trained model: {reason}")
    if found[0].model.closed_form:
        raise UserError(f"{found[0].row_name} is a table of counts; it has no parts to cut")
    return found


def _subject(run: TrainedRun) -> Subject:
    model = run.model.to(best_device())
    config = run.config
    recipe = stored_recipe(config["recipe"])
    return Subject(config["run"], model, recipe, config["seed"], run.state["best"]["epoch"])


def _cuts(
    point: _Point, subject: Subject, corpus: Corpus, *, pairs: bool
) -> tuple[list[Cut], list[str]]:
    """Return the cuts of the models of a point, and which ones are refused."""
    config = subject.model.config
    refused = []
    named = {}
    # A cut that is a point of the study has the label of the point.
    for label, model in point.others.items():
        other = MODELS.parse(model)
        if differs_in_cuts(config, other):
            named[other] = label
    for variant in variants(config, pairs=pairs):
        if isinstance(variant, str):
            refused.append(variant)
        else:
            named.setdefault(variant.config, variant.label)
    found = []
    for changed, label in named.items():
        try:
            found.append(config_cut(Variant(label, changed), subject, corpus))
        except UserError as error:
            refused.append(f"{label}: {error}")
    if found or refused:
        return found, refused
    return module_cuts(subject, corpus), refused


def _measure(
    folder: Path, subjects: Sequence[Subject], found: Sequence[Cut], steps: int, corpus: Corpus
):
    """Measure what is missing, each cut in each way on all seeds together."""
    store = open_store(folder)
    # An earlier call may have measured some.
    known = set(read_lines(folder).select(KEYS).iter_rows())
    extra = extra_data(corpus, subjects[0].recipe.batch, steps)
    # The whole model is trained on, too: further steps alone change its loss.
    jobs = [(WHOLE, ZEROED), (WHOLE, TRAINED)]
    jobs += itertools.product(found, WAYS)
    for number, (cut, way) in enumerate(jobs, 1):
        further = 0
        if way == TRAINED:
            further = steps
        missing = [
            subject
            for subject in subjects
            if (subject.run, subject.epoch, cut.label, way, further) not in known
        ]
        if not missing:
            continue
        _show(f"{number} of {len(jobs)}: {cut.label}, {way}")
        measured = losses(cut, way, missing, corpus, extra)
        for subject, loss in zip(missing, measured, strict=True):
            line = {
                "run": subject.run,
                "epoch": subject.epoch,
                "cut": cut.label,
                "way": way,
                "steps": further,
            }
            line |= _outcome(cut, way, subject, loss)
            store.append(ABLATIONS, record_line(line))
    _show("")


def _outcome(cut: Cut, way: str, subject: Subject, loss: float | None) -> FieldsDict:
    """Return a loss, or without one the reason, and the model that has it."""
    # Not every part has a mean, or another value.
    why = cut.missing.get(way, "")
    if loss is not None and not math.isfinite(loss):
        why = "the loss is not finite"
    model = MODELS.dump(cut.config or subject.model.config)
    return {"loss": loss, "why": why, "model": json.dumps(model, sort_keys=True)}


def _show(text: str):
    """Show the progress: in one place of a terminal, as lines of a file."""
    if sys.stderr is None:
        return
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text:79.79}\r")
    elif text:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
