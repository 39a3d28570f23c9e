"""A run's curves for TensorBoard, with hyper-parameters in the same run.

Every run of a study has the same HParams columns (point, stage, seed and the searched
fields), strings as strings and numbers as numbers, so the table sorts and filters. A
run that was cut off goes on in a new event file that purges the epochs it repeats.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from lmzoo.record import Record

METRICS = {"valid/token": 0.0, "test/token": 0.0}
CURVES = {
    "train_token": "train/token",
    "valid_token": "valid/token",
    "valid_sentence": "valid/sentence",
    "tokens_per_second": "speed/tokens_per_second",
}


class Board:
    """One run's event file."""

    def __init__(self, folder: Path, config: Mapping[str, Any], epoch: int) -> None:
        self._writer = SummaryWriter(str(folder), purge_step=epoch + 1 if epoch else None)
        if epoch == 0:
            self._write_hparams(config)

    def epoch(self, record: Record) -> None:
        """Draw one epoch's numbers; a diverged epoch has none."""
        for key, tag in CURVES.items():
            if record[key] is not None:
                self._writer.add_scalar(tag, record[key], record["epoch"])
        self._writer.flush()

    def test(self, token: float, sentence: float, epoch: int) -> None:
        """Draw the test losses, in nats."""
        self._writer.add_scalar("test/token", token, epoch)
        self._writer.add_scalar("test/sentence", sentence, epoch)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()

    def _write_hparams(self, config: Mapping[str, Any]) -> None:
        values = {
            "point": config["point"]["label"],
            "stage": config["stage"],
            "seed": config["seed"],
            **config["setting"],
        }
        for summary in hparams(values, METRICS):
            self._writer.file_writer.add_summary(summary)  # type: ignore[union-attr]
