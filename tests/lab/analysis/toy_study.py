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

TEMPLATES = Path(__file__).with_suffix(".json").read_text("utf-8")


def template(name: str) -> dict[str, Any]:
    """Return the content of `study.json`, or of the `config.json` of a run, of this version."""
    version = {"schema": files.SCHEMA, "numerics": files.NUMERICS}
    return version | json.loads(TEMPLATES)[name]


@dataclass
class ToyStudy:
    """A study's folder to which a test adds points and runs."""

    path: Path
    epochs: int = 3
    study_json: dict[str, Any] = field(init=False)
    """The content of `study.json`."""

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        budget = {"epochs": self.epochs, "samples": 2, "seeds": 3}
        self.study_json = template("study") | {"budget": budget}

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
        runs = []
        for seed, loss in enumerate(losses, start=1):
            runs.append(self.add_run(name, seed, loss, stage="confirm", **config))
        point = {"id": name, "label": f"cut {name}", "aliases": list(aliases)}
        self.study_json["points"].append(point)
        setting = {"lr": 0.003, "model.width": 32}
        chosen = {"setting": setting, "runs": runs, "edge": list(edge)}
        self.study_json["chosen"][name] = chosen
        self.write()
        return runs

    def add_points(self, table: str, **config: Any) -> None:
        """Add a point for each line of a table, as `full: 3.0 3.1 -`; "-" is a diverged run."""
        for line in table.strip().splitlines():
            # A name may have blanks and commas.
            name, cells = line.strip().split(": ")
            losses = []
            for cell in cells.split():
                loss = None
                if cell != "-":
                    loss = float(cell)
                losses.append(loss)
            self.add_point(name, losses, **config)

    def add_unconfirmed(self, name: str) -> None:
        """Add a point of which no setting is chosen."""
        point = {"id": name, "label": f"cut {name}", "aliases": []}
        self.study_json["points"].append(point)

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
        own = {"run": run, "stage": stage, "seed": seed}
        own["point"] = {"id": point, "label": f"cut {point}"}
        folder = files.RunFolder(self.path / run)
        folder.create(template("config") | own | config)
        if test is None:
            test = stage == "confirm"
        if status is None:
            status = "finished"
            if loss is None:
                status = "diverged"
        lines = []
        for number in range(1, self.epochs + 1):
            lines.append(self._epoch(number, loss))
        if test and loss is not None:
            lines.append(self._test(loss, sentence))
        end = {"event": "end", "epoch": self.epochs, "status": status, "reason": ""}
        write_lines(self.records_path(run), lines + [end])
        return run

    def _epoch(self, number: int, loss: float | None) -> dict[str, Any]:
        event = {"event": "epoch", "epoch": number, "seconds": 0.5, "tokens_per_second": 1000}
        valid = None
        half = None
        if loss is not None:
            valid = loss + (self.epochs - number) / 10
            half = valid / 2
        return event | {"train_token": valid, "valid_token": valid, "valid_sentence": half}

    def _test(self, loss: float, sentence: float | None) -> dict[str, Any]:
        if sentence is None:
            sentence = loss / 2
        event = {"event": "test", "epoch": self.epochs, "token": loss, "sentence": sentence}
        return event | {"tokens": 99, "sequences": 9, "best_epoch": 2}

    def records_path(self, run: str) -> Path:
        return self.path / run / files.RECORDS

    def config_path(self, run: str) -> Path:
        return self.path / run / files.CONFIG


def change_lines(path: Path, kind: str, **values: Any) -> None:
    """Set these values in all events of a kind of a file of records."""
    lines = read_lines(path)
    for line in lines:
        if line["event"] == kind:
            line |= values
    write_lines(path, lines)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    texts = [f"{json.dumps(line)}\n" for line in lines]
    path.write_text("".join(texts))


def cut_after_an_epoch(path: Path, status: str | None) -> None:
    """Leave the first epoch, and an end with this status; None: the run has not ended."""
    lines = read_lines(path)[:1]
    if status is not None:
        lines.append({"event": "end", "epoch": 1, "status": status, "reason": "rung 1"})
    write_lines(path, lines)


def rank(toy: ToyStudy, **options: Any) -> pl.DataFrame:
    folder = load_study(toy.write())
    return rank_points(folder.runs, folder.events, folder.study, **options)


def row(frame: pl.DataFrame, point: str) -> dict[str, Any]:
    return frame.filter(pl.col("point") == point).row(0, named=True)
