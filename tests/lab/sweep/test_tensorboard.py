"""TensorBoard curves are complete after a kill, and a disk error does not end the run."""

import threading

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import BOARD
from lmzoo.lab.sweep.worker import tensorboard
from tests.cases import rows

CONFIG = rows("lab/sweep/cases.toml", "board")
NAME = "cut state_to_candidate (4) · tune · 012345"
LOSSES = {"train_token": 1.0, "valid_token": 1.0, "valid_sentence": None}
RECORD = LOSSES | {"epoch": 1, "tokens_per_second": 9}


def write(writer, *, last=True):
    """Write what a worker writes when the run ends or after an epoch; return whether it did."""
    action = writer.take(last=last)
    if action is None:
        return False
    action()
    return True


@pytest.mark.parametrize(
    ("metrics", "error"), [({}, "[Errno"), ({"\udcff": 1.0}, "'utf-8' codec can't")]
)
def test_an_error_is_logged_once_and_not_raised(metrics, error, tmp_path, caplog):
    if not metrics:
        # Then the folder cannot be created.
        (tmp_path / BOARD).write_text("a file where the folder should be")
    writer = new_writer(Store(tmp_path))
    for _ in range(2):
        writer.write_epoch(RECORD | {"metrics": metrics})
        write(writer, last=False)
    write(writer)
    (logged,) = caplog.records
    assert f"TensorBoard curves stop here: {error}" in logged.message


def new_writer(store, **options):
    return tensorboard.RunWriter(store, CONFIG, **({"epoch": 0} | options))


def test_points_are_appended_and_no_file_stays_open(tmp_path):
    writer = new_writer(Store(tmp_path))
    assert writer.take() is None
    folder = tmp_path / BOARD / NAME
    threads = threading.active_count()
    for epoch in (1, 2):
        writer.write_epoch(record(epoch, float(epoch)))
        assert write(writer, last=False)
        *_, newest = curve(folder)
        assert newest == (epoch, epoch)
    assert len(list(folder.iterdir())) == 1
    # The writers of TensorBoard have a thread each.
    assert threading.active_count() == threads


def test_a_bucket_gets_the_file_when_the_run_ends(tmp_path):
    class Bucket(Store):
        """A store that has no folder."""

    writer = new_writer(Bucket(tmp_path))
    for epoch in (1, 2):
        writer.write_epoch(record(epoch, float(epoch)))
        assert write(writer, last=False)
        assert not (tmp_path / BOARD).exists()
    write(writer)
    assert curve(tmp_path / BOARD / NAME) == [(1, 1.0), (2, 2.0)]


def curve(folder, tag="valid/token"):
    events = EventAccumulator(str(folder), {"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def record(epoch, loss):
    return RECORD | {"epoch": epoch, "valid_token": loss}


@pytest.mark.parametrize("begun", ["0000000001", "9000000000"], ids=["before", "clock ahead"])
def test_a_continued_run_has_every_epoch_once_although_a_killed_process_wrote_too_few(
    tmp_path, begun
):
    folder = tmp_path / BOARD / NAME
    first = new_writer(Store(tmp_path))
    first.write_epoch(record(1, 4.0))
    write(first)  # it was killed before the numbers of epochs 2 and 3 were written
    (file,) = folder.iterdir()
    file.rename(folder / f"events.out.tfevents.{begun}")
    records = [record(1, 4.0), record(2, 3.0), record(3, 2.0)]
    second = new_writer(Store(tmp_path), epoch=2, records=records)
    second.write_epoch(record(3, 2.0))  # its checkpoint was damaged
    second.write_epoch(record(4, 1.0))
    write(second)
    assert curve(folder) == [(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)]


def test_a_maximized_metric_has_the_sign_that_the_program_gave_it(tmp_path):
    model = {"name": "command", "metric": "accuracy", "direction": "maximize"}
    writer = tensorboard.RunWriter(Store(tmp_path), CONFIG | {"model": model}, epoch=0)
    writer.write_epoch(record(1, -0.5))
    writer.write_epoch(record(2, None) | {"metrics": {}})  # it has diverged
    writer.write_test({"epoch": 2, "token": -0.25})
    write(writer)
    (folder,) = (tmp_path / BOARD).iterdir()
    assert curve(folder) == [(1, 0.5)]
    assert curve(folder, "test/token") == [(2, 0.25)]
