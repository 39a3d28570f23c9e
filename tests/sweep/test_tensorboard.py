"""A disk error while TensorBoard curves are written does not end the run."""

import errno

import pytest

from lmzoo.sweep import tensorboard

CONFIG = {"point": {"label": "one"}, "stage": "tune", "seed": 0, "setting": {}}
LOSSES = {"train_token": 1.0, "valid_token": 1.0, "valid_sentence": None}
RECORD = {"epoch": 1, **LOSSES, "tokens_per_second": 9}


class FullDiskWriter:
    """A writer whose disk is full when it opens, at the first number, or when it closes."""

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


@pytest.mark.parametrize("at", ["open", "write", "close"])
def test_a_disk_error_is_logged_once_and_not_raised(tmp_path, monkeypatch, caplog, at):
    monkeypatch.setattr(FullDiskWriter, "at", at, raising=False)
    monkeypatch.setattr(tensorboard, "SummaryWriter", FullDiskWriter)
    writer = tensorboard.RunWriter(tmp_path, CONFIG, epoch=0)
    if at == "write":
        writer.write_epoch(RECORD)
        writer.write_test(1.0, 1.0, 1)
    writer.close()
    assert [r.message for r in caplog.records] == [
        f"{tmp_path}: TensorBoard curves stop here: [Errno 28] No space left on device"
    ]
