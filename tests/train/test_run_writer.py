"""A run that is written in the background and killed at any moment: nothing is lost or doubled."""

# ruff: noqa: F811  fixtures are imported, and then requested by name
import contextlib
import threading

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.local import Store, retried
from lmzoo.lab.store.records import CHECKPOINT, CONFIG, RECORDS, RunFolder
from lmzoo.lab.store.s3 import _client
from lmzoo.lab.store.writer import Writer
from lmzoo.train.run import Run
from lmzoo.train.trainer import fit
from tests.lab.store.conftest import bucket, s3_server  # noqa: F401
from tests.train.written_runs import BUDGET, KilledError, address, config, events, kill_at, train  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.mark.parametrize("save_seconds", [0.0, 10.0])
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_write_loses_no_epoch_and_has_none_twice(
    address, config, corpus, save_seconds, stride, monkeypatch, tmp_path
):
    """At every third write; at every write in the slow tests."""
    monkeypatch.setattr(type(open_store(address)), "save_seconds", save_seconds)
    assert train(tmp_path / "undisturbed", config, corpus) is None
    expected = events(tmp_path / "undisturbed", config)
    written = [(record["event"], record["epoch"]) for record in expected]
    assert written == [("epoch", 1), ("epoch", 2), ("epoch", 3), ("test", 3), ("end", 3)]
    kills = 0
    for after in (False, True):
        for count in range(2, 20, stride):  # the first write to a bucket is the lock
            place = f"{address}/{after}-{count}"
            with monkeypatch.context() as patch:
                kill_at(patch, count, after=after)
                reported = train(place, config, corpus, threads=1)
            if reported is None:
                break
            kills += 1
            store = open_store(place)
            # The driver does this when a worker has died.
            store.clear_locks(".worker-*", 0.0)
            resumed = Run(RunFolder(store / config["run"]), config, corpus)
            if not save_seconds:  # the last epoch that was reported was being written
                assert resumed.epoch >= max(reported, default=0) - 1
            known = [record["epoch"] for record in resumed.records if record["event"] == "epoch"]
            assert known == list(range(1, resumed.epoch + 1))
            resumed.close()
            assert train(place, config, corpus) is None
            assert events(place, config) == expected
    # At least one before and one after a write.
    fewest = 2
    if stride == 1 and not save_seconds:
        # Each of the records is written by itself.
        fewest = 2 * len(expected)
    assert kills >= fewest


def test_a_written_run_equals_one_written_at_once(address, config, corpus, tmp_path):
    assert train(address, config, corpus) is None
    run = Run(RunFolder(tmp_path / "alone" / config["run"]), config, corpus)
    list(run.train(BUDGET))
    run.test()
    run.end("finished")
    run.close()
    assert events(address, config) == events(tmp_path / "alone", config)


def test_a_pruned_run_has_an_end_and_no_checkpoint(address, config, corpus):
    store = open_store(address)
    writer = Writer()
    folder = RunFolder(store / config["run"])
    run = Run(folder, config, corpus, new=True, writer=writer)
    for _ in fit(run.training, corpus, 2):
        run.save_epoch()
    run.prune(2)
    run.close()
    writer.close()
    end = {"event": "end", "epoch": 2, "status": "pruned", "reason": "rung 2"}
    assert end.items() <= folder.records()[-1].items()
    # A pruned run never goes on.
    assert folder.store.read(CHECKPOINT) is None


def test_no_record_is_written_without_its_checkpoint(address, config, corpus, monkeypatch):
    store = open_store(address)
    writer = Writer()
    monkeypatch.setattr(type(store), "save_seconds", 0.0)
    folder = RunFolder(store / config["run"])
    run = Run(folder, config, corpus, new=True, writer=writer)
    epochs = fit(run.training, corpus, 4)
    next(epochs)
    run.save_epoch()
    writer.wait()

    def refuse(*_, **__):
        raise OSError(28, "Quota gone")

    def save_two_epochs():  # the error of a write is raised at the next one, in either epoch
        next(epochs)
        run.save_epoch()
        next(epochs)
        run.save_epoch()

    with monkeypatch.context() as patch:
        patch.setattr("lmzoo.lab.store.writer.RETRY_SECONDS", 0.0)
        patch.setattr(type(store), "write", retried(refuse))
        with pytest.raises(UserError, match=rf"{CHECKPOINT}: Quota gone"):
            save_two_epochs()
    run.close()
    writer.close()
    assert epochs_in(folder.records()) in ([], [1])
    again = Run(folder, config, corpus)
    assert again.epoch == 1
    again.close()
    assert epochs_in(folder.records()) == [1]


def epochs_in(records):
    return [record["epoch"] for record in records]


def test_a_run_waits_for_a_slow_store(tmp_path, config, corpus, monkeypatch):
    """Or the checkpoints of many epochs would fill the memory."""
    monkeypatch.setattr(Store, "save_seconds", 0.0)
    writer = Writer()
    folder = RunFolder(tmp_path / "run")
    run = Run(folder, config, corpus, new=True, writer=writer)
    writer.wait()
    answer = threading.Event()
    write = Store.write

    def write_later(self, *args, **options):
        # A store that answers when the test says so.
        answer.wait(60)
        write(self, *args, **options)

    monkeypatch.setattr(Store, "write", write_later)
    epochs = fit(run.training, corpus, 2)
    next(epochs)
    run.save_epoch()
    next(epochs)
    timer = threading.Timer(0.5, answer.set)
    timer.start()
    run.save_epoch()
    assert answer.is_set()
    run.close()
    writer.close()
    timer.join()


def test_new_is_refused_if_the_run_exists(address, config, corpus):
    assert train(address, config, corpus, end=False) is None
    before = events(address, config)
    folder = RunFolder(open_store(address) / config["run"])
    writer = Writer()
    with pytest.raises(UserError, match="was created by another process") as refused:
        Run(folder, config, corpus, new=True)
    folder.store.lock(".lock").close()  # free, although `refused` keeps the frame of the call
    del refused
    again = RunFolder(open_store(address) / config["run"])
    run = Run(again, config, corpus, lock=False, new=True, writer=writer)
    next(fit(run.training, corpus, 1))
    with pytest.raises(UserError, match="was created by another process"):
        run.save_epoch()
    run.close()
    writer.close()
    assert events(address, config) == before


@contextlib.contextmanager
def run_of_a_worker(bucket, config, corpus):
    """Yield a new run in a bucket under the lock of its worker, and its writer."""
    store = open_store(bucket)
    writer = Writer()
    lock = store.lock(".worker-1")
    folder = RunFolder(store / config["run"])
    run = Run(folder, config, corpus, lock=False, new=True, writer=writer)
    yield run, writer
    run.close()
    lock.close()
    writer.close()


def test_epochs_in_a_bucket_are_written_together(bucket, config, corpus):
    with run_of_a_worker(bucket, config, corpus) as (run, writer):
        for _ in fit(run.training, corpus, 3):
            run.save_epoch()
        writer.wait()
        assert run.folder.records() == []
        assert run.folder.store.read(CHECKPOINT) is None
        assert epochs_in(run.records) == [1, 2, 3]
        # More than ten seconds after the last checkpoint.
        run._saved_at -= 11
        for _ in fit(run.training, corpus, 4):
            run.save_epoch()
        writer.wait()
        assert epochs_in(run.folder.records()) == [1, 2, 3, 4]
        for _ in fit(run.training, corpus, 5):
            run.save_epoch()
    assert epochs_in(run.folder.records()) == [1, 2, 3, 4, 5]


def test_requests_of_a_whole_run_in_a_bucket(bucket, config, corpus):
    """A run of less than ten seconds has one checkpoint."""
    requests: list[str] = []

    def count(request, **_):
        requests.append(f"{request.method} {request.url.rpartition('/')[2]}")

    _client().meta.events.register("before-send.s3", count)
    with run_of_a_worker(bucket, config, corpus) as (run, _):
        for _ in fit(run.training, corpus, 10):
            run.save_epoch()
        run.test()
        run.end("finished")
    assert len(requests) == 5
    for name in (CONFIG, CHECKPOINT, RECORDS):
        assert requests.count(f"PUT {name}") == 1
    for request in requests:
        assert not request.startswith("GET")


def test_a_damaged_checkpoint_in_a_bucket_starts_over(bucket, config, corpus):
    assert train(bucket, config, corpus, end=False) is None
    before = events(bucket, config)
    # A bucket has no previous checkpoint.
    (open_store(bucket) / config["run"]).write(CHECKPOINT, b"damaged")
    assert train(bucket, config, corpus, end=False) is None
    after = events(bucket, config)
    *others, note = after
    assert others == before
    assert "damaged, starting over" in note["reason"]
