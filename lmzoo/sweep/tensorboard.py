"""A run's curves for TensorBoard, with hyper-parameters in the same run.

Every run of a study has the same HParams columns (point, stage, seed and the searched
fields), strings as strings and numbers as numbers, so the table sorts and filters. A
run that was cut off goes on in a new event file that purges the epochs it repeats.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from lmzoo.store.records import Record
from lmzoo.store.retry import LOG

METRICS = {"valid/token": 0.0, "test/token": 0.0}
CURVES = {
    "train_token": "train/token",
    "valid_token": "valid/token",
    "valid_sentence": "valid/sentence",
    "tokens_per_second": "speed/tokens_per_second",
}


class RunWriter:
    """One run's event file; a disk that cannot take curves ends the drawing, never the run."""

    def __init__(self, folder: Path, config: Mapping[str, Any], epoch: int) -> None:
        self._folder, self._writer = folder, None
        with self._at_best():
            self._writer = SummaryWriter(str(folder), purge_step=epoch + 1 if epoch else None)
            if epoch == 0:
                self._write_hparams(config)

    def epoch(self, record: Record) -> None:
        """Draw one epoch's numbers; a diverged epoch has none."""
        curves = {tag: record[key] for key, tag in CURVES.items() if record[key] is not None}
        self._draw(curves, record["epoch"])

    def test(self, token: float, sentence: float, epoch: int) -> None:
        """Draw the test losses, in nats."""
        self._draw({"test/token": token, "test/sentence": sentence}, epoch)

    def close(self) -> None:
        """Flush and close."""
        with self._at_best():
            if self._writer is not None:
                self._writer.close()

    def _draw(self, curves: Mapping[str, float], epoch: int) -> None:
        with self._at_best():
            if self._writer is not None:
                for tag, value in curves.items():
                    self._writer.add_scalar(tag, value, epoch)
                self._writer.flush()

    @contextlib.contextmanager
    def _at_best(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            LOG.warning("%s: no more curves: %s", self._folder, error)
            self._writer = None

    def _write_hparams(self, config: Mapping[str, Any]) -> None:
        values = {
            "point": config["point"]["label"],
            "stage": config["stage"],
            "seed": config["seed"],
            **config["setting"],
        }
        for summary in hparams(values, METRICS):
            self._writer.file_writer.add_summary(summary)  # type: ignore[union-attr]
