"""How every subcommand names a run or a study.

    runs/single/1f3a90c2d4e5       the folder of a run
    gru_ablation:carry             STUDY:POINT, the confirm run with the lowest validation loss
    DLM46                          a row: its latest run by `lmzoo train`

STUDY is a folder, or the name, or its beginning, of a study in the folder of the runs. POINT is a
label, a cut by name or number, or a point's id.
"""

from pathlib import Path
from typing import Annotated

import typer

from lmzoo.base.errors import UserError
from lmzoo.base.foreign import checked
from lmzoo.base.plain import Fields
from lmzoo.lab.store import records as files
from lmzoo.lab.store.address import S3_SCHEME
from lmzoo.lab.store.archive import read_config, restore_run
from lmzoo.lab.store.labels import find_point, named_points
from lmzoo.lab.store.records import RunFolder

RUN_HELP = "A folder, STUDY:POINT (its best confirmed seed)"
Runs = Annotated[Path, typer.Option("--runs", help="Folder in which runs and studies are found.")]


def find_run(text: str, runs: Path = files.RUNS) -> Path:
    """Return the folder of the run that a text names; a `UserError` if it is not one."""
    path = Path(text)
    if (path / files.STUDY).exists():
        raise UserError(f"{text} is the folder of a study; name a point of it, as in {text}:POINT")
    # A run in the archive gets its folder when it is named.
    path = restore_run(path.parent, path.name)
    if path.is_dir():
        return path
    study, colon, point = text.partition(":")
    if colon and not S3_SCHEME.match(text):
        return _best_seed(files.find_study(study, runs), point)
    if len(path.parts) > 1:
        raise UserError(f"{text} is not the folder of a trained run; {files.studies_hint(runs)}")
    return _latest(text, runs)


def find_studied(text: str, runs: Path = files.RUNS) -> tuple[Path, str]:
    """Return the study that a text names, and the point or ""; errors are those of `find_study`."""
    study = text
    point = ""
    if not S3_SCHEME.match(text):  # the colon of s3:// is none of ours
        study, _, point = text.partition(":")
    return files.find_study(study, runs), point


def _best_seed(study: Path, text: str) -> Path:
    """Return the confirm run of a point with the lowest validation loss."""
    content = None
    if study.is_dir():
        content = files.read_json(study / files.STUDY)
    if not isinstance(content, dict):
        raise UserError(f"{study} is not the folder of a study, so it has no weights of a point")
    chosen: Fields = content["chosen"]
    models = {}
    for point, choice in chosen.items():
        # A study of somebody else may name any path as a run.
        for run in checked(choice["runs"]):
            config = read_config(study, run)
            if config:
                models[point] = config["model"]
                break
    point = find_point(named_points(content, models)["points"], text)
    names = chosen.get(point["id"], {"runs": ()})["runs"]
    losses = {}
    for name in checked(names):
        run = RunFolder(restore_run(study, name))
        loss = _best_loss(run)
        if loss is not None and run.checkpoint.exists():
            losses[run.path] = loss
    if not losses:
        raise UserError(
            f"{study}: point {point['label']!r} has no confirm run with weights; run its sweep "
            "again (records that were restored from a file have no weights)"
        )
    return min(losses, key=lambda path: losses[path])


def _best_loss(run: RunFolder) -> float | None:
    """Return the lowest validation loss of a run; None if it diverged or has no epoch."""
    records = run.records()
    if any(record.get("status") == "diverged" for record in records):
        return None
    losses = [
        record["valid_token"]
        for record in files.epoch_records(records)
        if record["valid_token"] is not None
    ]
    return min(losses, default=None)


def _latest(name: str, runs: Path) -> Path:
    from lmzoo.lab.study.trainable import open_door  # imports torch

    try:
        row = open_door().row_name(name)
    except UserError as error:
        raise UserError(f"{error}; nor is it a folder or the name of a run") from None
    trained = {}
    for path in list(runs.glob("*/config.json")) + list(runs.glob("*/*/config.json")):
        folder = RunFolder(path.parent)
        config = folder.config or {}
        if config.get("row") == row and folder.checkpoint.exists():
            trained[folder.path] = folder.checkpoint.stat().st_mtime
    if not trained:
        raise UserError(
            f"no run of {name} in {runs}; train one with `lmzoo train {name}`, or give the folder "
            "of a run"
        )
    # Of equal times, the last name.
    return max(trained, key=lambda path: (trained[path], path))
