"""Load and rank 2,000 runs of 30 epochs, and load the same numbers with Ray.

    python benchmarks/ranking.py --out runs/bench/ranking.json

Ours is `lmzoo rank`: from folders to a rendered table, with bootstrap and tests. The rival is
`ray.tune.ExperimentAnalysis` over an experiment folder whose trials have the same metrics in the
lines of Ray's JSON logger, and its frame of best epochs; it ranks nothing. Both read from the disk,
in one process, interleaved.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from measure import Ratio, interleave, save, speedup, time_ratio
from ray.air.constants import EXPR_PARAM_FILE, EXPR_RESULT_FILE
from ray.train._internal.storage import StorageContext
from ray.tune import ExperimentAnalysis, PlacementGroupFactory
from ray.tune.experiment import Trial

from lmzoo.analysis.tables.ranking_table import study_ranking
from lmzoo.analysis.text.render import render
from lmzoo.command_line import run_command
from lmzoo.store.records import RECORDS, SCHEMA, STUDY, RunFolder, write_json

POINTS, SEEDS, EPOCHS = 100, 20, 30
LIMIT = 2.0
"""Seconds that a ranking may take."""


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/ranking.json"),
) -> None:
    """Write both folders, then measure."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "study"), Path(folder, "ray", "study")
        write_study(ours)
        write_experiment(theirs)
        rows = compare(ours, theirs, rounds)
    save(rows, out)


def compare(ours: Path, theirs: Path, rounds: int) -> list[Ratio]:
    """Return the rows, after a check that both sides read every run."""
    frame = ExperimentAnalysis(str(theirs)).dataframe(metric="valid_token", mode="min")
    assert len(frame) == POINTS * SEEDS
    assert render(study_ranking(ours), "csv").count("\n") >= POINTS

    def load_with_ray() -> object:
        return ExperimentAnalysis(str(theirs)).dataframe(metric="valid_token", mode="min")

    contenders = {"ours": lambda: render(study_ranking(ours), "md"), "ray": load_with_ray}
    seconds = interleave(contenders, rounds)
    what, at = "ranking", f"{POINTS * SEEDS:,} runs x {EPOCHS} epochs"
    mine, rival = seconds["ours"], "ray.tune.ExperimentAnalysis"
    limit = [LIMIT] * len(mine)
    return [
        speedup(what, at, rival, mine, seconds["ray"], goal=10),
        time_ratio(what, at, f"{LIMIT:g} s", mine, limit, goal=1.0),
    ]


def valid_loss(point: int, seed: int, epoch: int) -> float:
    """Return a validation loss that decreases with the epochs."""
    return 3 + point / 50 + (seed * 7 % 5) / 100 + 2 / epoch


def epoch_lines(point: int, seed: int) -> list[dict[str, Any]]:
    """Return the records of a run's epochs."""
    return [
        {
            "epoch": epoch, "train_token": valid_loss(point, seed, epoch) - 0.1,
            "valid_token": valid_loss(point, seed, epoch),
            "valid_sentence": valid_loss(point, seed, epoch) + 0.05,
            "seconds": 1.25, "tokens_per_second": 120000.5,
        }
        for epoch in range(1, EPOCHS + 1)
    ]  # fmt: skip


def write_study(path: Path, count: int = POINTS, seeds: int = SEEDS) -> None:
    """Write a study's folder as a sweep does, with `count` points."""
    path.mkdir(parents=True)
    points, chosen = [], {}
    for point in range(count):
        name, setting = f"point{point:03d}", {"lr": 0.003}
        runs = []
        for seed in range(1, seeds + 1):
            runs.append(f"{name}-{seed}")
            folder = RunFolder(path / runs[-1])
            folder.create(
                {
                    "schema": SCHEMA, "run": runs[-1], "study": "bench", "stage": "confirm",
                    "seed": seed, "point": {"id": name, "label": name}, "model": {"name": "m"},
                    "recipe": {"lr": 0.003}, "corpus": {"name": "captions", "lines": 100},
                    "fingerprint": "f00d", "vocab": 30, "length": 20, "setting": setting,
                    "parameters": 12345, "score": "exact", "leaks": "", "floor": None,
                    "environment": {"torch": "2"},
                }
            )  # fmt: skip
            lines = [{"event": "epoch", **line} for line in epoch_lines(point, seed)]
            last = valid_loss(point, seed, EPOCHS)
            test = {"event": "test", "epoch": EPOCHS, "token": last, "sentence": last}
            lines.append({**test, "tokens": 99, "sequences": 9, "best_epoch": EPOCHS})
            lines.append({"event": "end", "epoch": EPOCHS, "status": "finished", "reason": ""})
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder.path / RECORDS).write_text(text)
        points.append({"id": name, "label": name, "aliases": []})
        chosen[name] = {"setting": setting, "runs": runs, "edge": []}
    budget = {"epochs": EPOCHS, "samples": 1, "seeds": seeds}
    search = {"lr": {"low": 1e-4, "high": 0.1, "log": True}}
    study = {"schema": SCHEMA, "name": "bench", "question": "How fast?", "reference": "point000"}
    write_json(
        path / STUDY,
        {**study, "budget": budget, "search": search, "points": points, "chosen": chosen},
    )


def write_experiment(path: Path) -> None:
    """Write an experiment's folder as Ray does, with Ray's own trials."""
    states = []
    for point in range(POINTS):
        for seed in range(1, SEEDS + 1):
            name = f"{point:03d}_{seed:05d}"
            config = {"point": point, "seed": seed, "lr": 0.003}
            storage = StorageContext(str(path.parent), path.name, trial_dir_name=f"trial_{name}")
            trial = Trial("bench", stub=True, config=config, trial_id=name, storage=storage)
            trial.placement_group_factory = PlacementGroupFactory([{"CPU": 1.0}])
            lines = [ray_line(line, trial) for line in epoch_lines(point, seed)]
            trial.run_metadata.last_result = lines[-1]
            states.append(trial.get_json_state())
            folder = path / f"trial_{name}"
            folder.mkdir(parents=True)
            (folder / EXPR_RESULT_FILE).write_text("".join(json.dumps(x) + "\n" for x in lines))
            (folder / EXPR_PARAM_FILE).write_text(json.dumps(config))
    state = {"trial_data": states, "runner_data": {}, "stats": {"start_time": 0.0}}
    (path / "experiment_state-2026-01-01_00-00-00.json").write_text(json.dumps(state))


def ray_line(line: dict[str, Any], trial: Trial) -> dict[str, Any]:
    """Return a line of Ray's JSON logger: the metrics, and the fields that Ray adds."""
    epoch = line["epoch"]
    return {
        **line, "timestamp": 1767225600 + epoch, "checkpoint_dir_name": None,
        "done": epoch == EPOCHS,
        "training_iteration": epoch, "trial_id": trial.trial_id, "date": "2026-01-01_00-00-00",
        "time_this_iter_s": 1.25, "time_total_s": 1.25 * epoch, "pid": 1234, "hostname": "host",
        "node_ip": "127.0.0.1", "config": trial.config, "time_since_restore": 1.25 * epoch,
        "iterations_since_restore": epoch,
    }  # fmt: skip


if __name__ == "__main__":
    run_command(main)
