"""Curves are for looking at: a disk that cannot take them ends no run."""

import errno

import pytest

from lmzoo.sweep import tensorboard as board

CONFIG = {"point": {"label": "one"}, "stage": "tune", "seed": 0, "setting": {}}
RECORD = {
    "epoch": 1,
    "train_token": 1.0,
    "valid_token": 1.0,
    "valid_sentence": None,
    "tokens_per_second": 9,
}


class Full:
    """A writer whose disk is full from the start, or from the first number on."""

    def __init__(self, *_, **__):
        if self.at == "open":
            raise OSError(errno.ENOSPC, "No space left on device")
        self.file_writer = self
        self.numbers = 0

    def add_summary(self, _):
        pass

    def add_scalar(self, *_):
        self.numbers += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")

    close = flush


@pytest.mark.parametrize("at", ["open", "draw", "close"])
def test_a_disk_that_takes_no_curves_is_told_once_and_stops_nothing(
    tmp_path, monkeypatch, caplog, at
):
    monkeypatch.setattr(Full, "at", at, raising=False)
    monkeypatch.setattr(board, "SummaryWriter", Full)
    drawn = board.RunWriter(tmp_path, CONFIG, epoch=0)
    if at == "draw":
        drawn.epoch(RECORD)
        drawn.test(1.0, 1.0, 1)
    drawn.close()
    assert [r.message for r in caplog.records] == [
        f"{tmp_path}: no more curves: [Errno 28] No space left on device"
    ]
