"""Write a study's folder as a sweep does, with losses that a test chooses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.store import records as files


@dataclass
class ToyStudy:
    """A study's folder to which a test adds points and runs."""

    path: Path
    epochs: int = 3
    study_json: dict[str, Any] = field(init=False)
    """The content of `study.json`."""

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        self.study_json = {
            "schema": files.SCHEMA,
            "numerics": files.NUMERICS,
            "name": "toy",
            "question": "Which path can be cut?",
            "reference": "full",
            "budget": {"epochs": self.epochs, "samples": 2, "seeds": 3},
            "search": {
                "lr": {"low": 1e-4, "high": 0.1, "log": True},
                "model.width": {"low": 8, "high": 256, "log": False},
                "recipe.clip": {"values": [1.0, None]},
            },
            "points": [],
            "chosen": {},
        }

    def write(self) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / files.STUDY).write_bytes(files.json_bytes(self.study_json))
        return self.path

    def add_point(
        self,
        name: str,
        losses: Sequence[float | None],
        *,
        aliases: tuple[str, ...] = (),
        edge: tuple[str, ...] = (),
        **config: Any,
    ) -> list[str]:
        """Add a point whose confirm runs (seeds 1, 2, ...) have these test losses; return the runs.

        None is a diverged run. The sentence loss is half the token loss, and the validation loss at
        epoch e is loss + (epochs − e) / 10. `config` has further fields of the runs' config.
        """
        seeds = enumerate(losses, start=1)
        runs = [self.add_run(name, seed, x, stage="confirm", **config) for seed, x in seeds]
        own = {"id": name, "label": f"cut {name}", "aliases": list(aliases)}
        self.study_json["points"].append(own)
        chosen = {"setting": {"lr": 0.003, "model.width": 32}, "runs": runs, "edge": list(edge)}
        self.study_json["chosen"][name] = chosen
        self.write()
        return runs

    def add_points(self, **losses: Sequence[float | None]) -> None:
        for name, own in losses.items():
            self.add_point(name, own)

    def add_run(
        self,
        point: str,
        seed: int,
        loss: float | None,
        *,
        stage: str = "tune",
        status: str | None = None,
        sentence: float | None = None,
        test: bool | None = None,
        **config: Any,
    ) -> str:
        """Write one run's folder and return the run's identity."""
        run = f"{point}-{stage}-{seed}"
        folder = files.RunFolder(self.path / run)
        folder.create(
            {
                "schema": files.SCHEMA, "numerics": files.NUMERICS,
                "run": run, "study": "toy", "stage": stage, "seed": seed,
                "point": {"id": point, "label": f"cut {point}"}, "model": {"name": "m"},
                "recipe": {"lr": 0.003}, "corpus": {"name": "ptb", "lines": 100},
                "fingerprint": "f00d", "vocab": 30, "length": 20, "setting": {"lr": 0.003},
                "parameters": 12345, "score": "exact", "leaks": "", "floor": None,
                "environment": {"torch": "2"}, **config,
            }
        )  # fmt: skip
        status = status or ("diverged" if loss is None else "finished")
        lines: list[dict[str, Any]] = []
        for epoch in range(1, self.epochs + 1):
            valid = None if loss is None else loss + (self.epochs - epoch) / 10
            own = {
                "train_token": valid,
                "valid_token": valid,
                "valid_sentence": valid and valid / 2,
            }
            fixed = {"event": "epoch", "epoch": epoch, "seconds": 0.5, "tokens_per_second": 1000}
            lines.append(fixed | own)
        if loss is not None and (stage == "confirm" if test is None else test):
            half = loss / 2 if sentence is None else sentence
            scored = {"tokens": 99, "sequences": 9, "best_epoch": 2}
            test_event = {"event": "test", "epoch": self.epochs, "token": loss, "sentence": half}
            lines.append({**test_event, **scored})
        lines.append({"event": "end", "epoch": self.epochs, "status": status, "reason": ""})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder.path / files.RECORDS).write_text(text)
        return run

    def records_path(self, run: str) -> Path:
        return self.path / run / files.RECORDS

    def config_path(self, run: str) -> Path:
        return self.path / run / files.CONFIG


def change_lines(path: Path, kind: str, **values: Any) -> None:
    """Set these values in all events of a kind of a file of records."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [line | values if line["event"] == kind else line for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def cut_after_an_epoch(path: Path, status: str | None) -> None:
    end = {"event": "end", "epoch": 1, "status": status, "reason": "rung 1"}
    first = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(first + (json.dumps(end).encode() + b"\n") * (status is not None))


def rank(toy: ToyStudy, **options: Any) -> pl.DataFrame:
    folder = load_study(toy.write())
    return rank_points(folder.runs, folder.events, folder.study, **options)


def row(frame: pl.DataFrame, point: str) -> dict[str, Any]:
    return frame.filter(pl.col("point") == point).row(0, named=True)
