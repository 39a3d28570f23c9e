"""Runs that are written in the background, in a folder and in a bucket, and killed."""

import functools

import pytest

from lmzoo import zoo
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import RECORDS, RunFolder, records_pending
from lmzoo.lab.store.s3 import Bucket
from lmzoo.lab.store.writer import Writer
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import Run, run_config
from lmzoo.train.trainer import fit
from tests.lab.store.conftest import bucket, s3_server  # noqa: F401

BUDGET = 3


class KilledError(BaseException):
    """Ends a process at this moment."""


@pytest.fixture
def config(corpus):
    model = zoo.config("DLM46", width=4, emission={"components": 3})
    return run_config(model, Recipe(batch=16), corpus, {"name": "toy"}, seed=0)


@pytest.fixture(params=["folder", "bucket"])
def address(request, tmp_path):
    if request.param == "folder":
        return tmp_path / "study"
    return request.getfixturevalue("bucket")


def train(address, config, corpus, *, epochs=BUDGET, end=True, threads=4):
    """Train like a worker until the run has ended; return the epochs as they are reported."""
    store = open_store(address)
    writer = Writer(threads)
    reported = []
    lock = store.lock(".worker-1")
    folder = RunFolder(store / config["run"])
    new = config["run"] not in store.prefetch(RECORDS)
    try:
        run = Run(folder, config, corpus, lock=False, new=new, writer=writer)
        reported += [r["epoch"] for r in run.records if r["event"] == "epoch"]
        for _ in fit(run.training, corpus, epochs):
            run.save_epoch()
            reported.append(run.epoch)
        if end and records_pending(run.records, epochs, test=True):
            run.test()
            run.end("finished")
        run.close()
    except KilledError:
        return reported
    finally:
        # The threads of a killed process end with it.
        writer._pool.shutdown()
        lock.close()
    return None


def events(address, config):
    """Return the lines of the records file without the timings; every line must be whole."""
    store = open_store(address) / config["run"]
    lines = (store.read(RECORDS) or b"").splitlines()
    records = RunFolder(store).records()
    assert len(records) == len(lines), "a record is there twice, or torn"
    for record in records:
        for name in ("seconds", "tokens_per_second", "time", "environment"):
            record.pop(name, None)
    return records


def kill_at(patch, count, *, after):
    """Kill the process before, or after, its write number `count`; nothing later is written."""
    # A list, because the wrappers change it.
    writes = [0]

    def killing(write):
        @functools.wraps(write)
        def wrapper(*args, **options):
            writes[0] += 1
            is_last = writes[0] == count
            if writes[0] > count:
                raise KilledError
            if is_last and not after:
                if write.__name__ == "overwrite":
                    own, name, data = args
                    content = b"".join(data)
                    half = content[: len(content) // 2]
                    write(own, name, half)
                raise KilledError
            result = write(*args, **options)
            if is_last:
                raise KilledError
            return result

        return wrapper

    for name in ("create", "write", "append", "overwrite"):
        write = getattr(Store, name)
        patch.setattr(Store, name, killing(write))
    patch.setattr(Bucket, "put", killing(Bucket.put))
    return writes
