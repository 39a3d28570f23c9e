"""The files of trackers for `growth.py`, and what reads them without lmzoo.

Each tracker gets the same losses, a run for each variant and seed. Its rival is the reader of its
own package, in an interpreter that has it.
"""

import io
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

Loss = tuple[str, int, float]
"""Variant, seed and loss of a run."""
STEPS = 20
"""Points of a curve in TensorBoard's files."""
ASKED = ("--lower-is-better", "--margin", "0.02")


class Tracker(NamedTuple):
    """A tracker, and what reads its files."""

    name: str
    write: Callable[[Path, Sequence[Loss]], None]
    judged: tuple[str, ...]
    """Arguments of `lmzoo judge` after the path."""
    package: str
    rival: str
    script: str
    """Python that reads the path in its first argument with the package alone."""


def write_optuna(path: Path, losses: Sequence[Loss]) -> None:
    """Write a storage with a trial for each run."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=f"sqlite:///{path}", study_name="growth")
    variants = sorted({variant for variant, _, _ in losses})
    spaces = {
        "variant": optuna.distributions.CategoricalDistribution(variants),
        "seed": optuna.distributions.IntDistribution(0, 10**6),
    }
    trials = []
    for variant, seed, loss in losses:
        given = {"variant": variant, "seed": seed}
        trials.append(optuna.trial.create_trial(params=given, distributions=spaces, value=loss))
    study.add_trials(trials)


def write_mlflow(path: Path, losses: Sequence[Loss]) -> None:
    """Write a folder `mlruns`, as MLflow's file store has it."""
    home = path / "0"
    home.mkdir(parents=True)
    home.joinpath("meta.yaml").write_text(
        "artifact_location: .\ncreation_time: 1\nexperiment_id: '0'\nlast_update_time: 1\n"
        "lifecycle_stage: active\nname: Default\n"
    )
    for place, (variant, seed, loss) in enumerate(losses):
        run = home / f"{place:032x}"
        files = {
            "meta.yaml": (
                f"artifact_uri: .\nend_time: 2\nentry_point_name: ''\nexperiment_id: '0'\n"
                f"lifecycle_stage: active\nrun_id: '{run.name}'\nrun_name: r{place}\n"
                f"source_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: {place}\n"
                f"status: 3\ntags: []\nuser_id: x\n"
            ),
            "params/variant": variant,
            "params/seed": str(seed),
            "metrics/loss": f"1 {loss} 1\n",
            "tags/mlflow.user": "x",
        }
        for name, text in files.items():
            file = run / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def write_tensorboard(path: Path, losses: Sequence[Loss]) -> None:
    """Write an event file for each run, in the folder VARIANT/SEED."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    for place, (variant, seed, loss) in enumerate(losses):
        data = io.BytesIO()
        records = RecordWriter(data)
        records.write(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
        for step in range(1, STEPS + 1):
            value = Summary.Value(tag="loss", simple_value=loss + 1 - step / STEPS)
            event = Event(wall_time=1.0 + step, step=step, summary=Summary(value=[value]))
            records.write(event.SerializeToString())
        folder = path / variant.replace("/", " ") / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath(f"events.out.tfevents.1.host.{place}").write_bytes(data.getvalue())


BY_COLUMN = ("--by", "variant", "--seed", "seed", "--metric")
TRACKERS = (
    Tracker(
        "Optuna",
        write_optuna,
        (*BY_COLUMN, "value"),
        "optuna",
        "trials_dataframe()",
        """
import sys, optuna
study = optuna.load_study(study_name="growth", storage=f"sqlite:///{sys.argv[1]}")
print(study.trials_dataframe().groupby("params_variant")["value"].agg(["mean", "std"]))
""",
    ),
    Tracker(
        "mlruns",
        write_mlflow,
        (*BY_COLUMN, "loss"),
        "mlflow",
        "mlflow.search_runs()",
        """
import os, sys
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
import mlflow
mlflow.set_tracking_uri(f"file:{sys.argv[1]}")
runs = mlflow.search_runs(["0"], max_results=10**6)
print(runs.groupby("params.variant")["metrics.loss"].agg(["mean", "std"]))
""",
    ),
    Tracker(
        "TensorBoard",
        write_tensorboard,
        ("--by", "part1", "--seed", "part2", "--metric", "loss"),
        "tensorboard",
        "EventFileLoader",
        """
import statistics, sys
from pathlib import Path
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
found = {}
for file in sorted(Path(sys.argv[1]).rglob("events.*")):
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            last = value.tensor.float_val[0]
    found.setdefault(file.parts[-3], []).append(last)
for variant, losses in found.items():
    print(variant, statistics.mean(losses))
""",
    ),
)
DUCKDB = """
import sys, duckdb
print(duckdb.sql(f"select variant, count(*), avg(loss) mean, stddev(loss) "
                 f"from read_csv('{sys.argv[1]}') group by variant order by mean"))
"""


def missing(python: str) -> list[str]:
    """Return the packages of rivals that an interpreter does not have."""
    packages = ["duckdb", *(tracker.package for tracker in TRACKERS)]
    look = (
        "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if not u.find_spec(n)])"
    )
    command = [python, "-c", look, *packages]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
