"""A run in a bucket: its requests, and its records after an interruption."""

# ruff: noqa: F811  fixtures are imported, and then requested by name

import pytest

from lmzoo.lab.store.local import open_store
from lmzoo.lab.store.records import CHECKPOINT, CONFIG, RECORDS, RunFolder
from lmzoo.lab.store.s3 import _client
from lmzoo.lab.store.writer import Writer
from lmzoo.train.run import Run
from lmzoo.train.trainer import fit
from tests.lab.store.conftest import bucket, s3_server  # noqa: F401
from tests.train.written_runs import BUDGET, KilledError, address, config, events, kill_at, train  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def test_epochs_in_a_bucket_are_written_together(bucket, config, corpus):
    store, writer = open_store(bucket), Writer()
    with_lock = store.lock(".worker-1")
    folder = RunFolder(store / config["run"])
    run = Run(folder, config, corpus, lock=False, new=True, writer=writer)
    for _ in fit(run.training, corpus, 3):
        run.save_epoch()
    writer.wait()
    assert folder.records() == []
    assert folder.store.read(CHECKPOINT) is None
    assert [r["epoch"] for r in run.records] == [1, 2, 3]
    run._saved_at -= 11
    for _ in fit(run.training, corpus, 4):
        run.save_epoch()
    writer.wait()
    assert [r["epoch"] for r in folder.records()] == [1, 2, 3, 4]
    for _ in fit(run.training, corpus, 5):
        run.save_epoch()
    run.close()
    assert [r["epoch"] for r in folder.records()] == [1, 2, 3, 4, 5]
    with_lock.close()
    writer.close()


def test_requests_of_a_whole_run_in_a_bucket(bucket, config, corpus):
    """A run of less than ten seconds has one checkpoint."""
    requests: list[str] = []

    def count(request, **_):
        requests.append(f"{request.method} {request.url.rpartition('/')[2]}")

    _client().meta.events.register("before-send.s3", count)
    store, writer = open_store(bucket), Writer()
    lock = store.lock(".worker-1")
    folder = RunFolder(store / config["run"])
    run = Run(folder, config, corpus, lock=False, new=True, writer=writer)
    for _ in fit(run.training, corpus, 10):
        run.save_epoch()
    run.test()
    run.end("finished")
    run.close()
    lock.close()
    assert not [r for r in requests if r.startswith("GET")]
    assert requests.count(f"PUT {CHECKPOINT}") == 1
    assert requests.count(f"PUT {RECORDS}") == requests.count(f"PUT {CONFIG}") == 1
    assert len(requests) == 6
    writer.close()


def test_a_damaged_checkpoint_in_a_bucket_starts_over_without_duplicate_records(
    bucket, config, corpus
):
    assert train(bucket, config, corpus, end=False) is None
    before = events(bucket, config)
    (open_store(bucket) / config["run"]).write(CHECKPOINT, b"damaged")
    assert train(bucket, config, corpus, end=False) is None
    after = events(bucket, config)
    assert [r for r in after if r["event"] != "note"] == before
    assert "damaged, starting over" in after[-1]["reason"]
