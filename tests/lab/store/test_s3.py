"""A store in a bucket: requests, answers, and a lock whose owner stops writing in time."""

import errno
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from lmzoo.base.errors import UserError
from lmzoo.lab.store import s3
from lmzoo.lab.store import writer as retry_module
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.s3 import LINES, S3Store
from tests.cases import cases
from tests.lab.sweep.processes import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def store(bucket):
    return open_store(f"{bucket}/a/b")


def fail(*_, **__):
    raise OSError("away")


def test_bucket_address_may_be_a_path(bucket):
    store = open_store(Path(f"{bucket}/a") / "b")
    assert str(store) == f"{bucket}/a/b" == store.address
    assert type(open_store("runs/a")) is Store


def test_local_copy_has_the_named_files_of_all_subfolders(store):
    for i in range(3):
        (store / f"run{i}").write("config.json", b"c%d" % i)
        (store / f"run{i}").write("checkpoint.pt", b"heavy")
    (store / "run0").write("study.json", b"in the same folder")
    store.write("study.json", b"s")
    (open_store(f"{store}c")).write("config.json", b"a longer prefix with the same start")
    folder = store.local_copy(["config.json", "study.json"])
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert files == {
        "run0/config.json": b"c0", "run1/config.json": b"c1", "run2/config.json": b"c2",
        "study.json": b"s", "run0/study.json": b"in the same folder",
    }  # fmt: skip


def test_errors_name_the_store_and_the_cause(bucket, monkeypatch):
    with pytest.raises(UserError, match="'s3://' has no bucket"):
        open_store("s3://")
    with pytest.raises(UserError, match=r"s3://no-such-bucket/x/a: S3 refuses .*NoSuchBucket"):
        open_store("s3://no-such-bucket/x").write("a", b"")
    monkeypatch.setattr(retry_module, "RETRY_SECONDS", 0.1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    s3._client.cache_clear()
    for operation in (lambda s: s.read("a"), lambda s: s.delete("a"), lambda s: s.names()):
        with pytest.raises(UserError, match="S3 does not answer"):
            operation(open_store(f"{bucket}/x"))


def test_scratch_folder_belongs_to_one_process(store, tmp_path):
    assert store.path.is_relative_to(tmp_path)
    folder = store.path.parents[2]
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert open_store(str(store)).path == store.path, "a run is opened again in the same process"
    code = (
        "import os, sys; from lmzoo.lab.store.address import open_store\n"
        "def folder(): return open_store(sys.argv[1]).path.parents[2]\n"
        "parent = folder(); child = os.fork()\n"
        "if not child: print(folder()); sys.exit()\n"
        "os.waitpid(child, 0); print(parent); print(parent.exists())"
    )
    command = [sys.executable, "-c", code, str(store)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    child, parent, exists_after_child = out
    assert len({child, parent, str(folder)}) == 3
    assert exists_after_child == "True"
    assert not Path(parent).exists()
    assert not Path(child).exists()
    assert folder.exists()


@cases("lab/store/cases.toml", "answers", "status, code, kind")
def test_an_answer_of_s3_is_the_error_of_a_file(status, code, kind):
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises((OSError, UserError)) as caught, s3._translate_errors("x"):
        raise ClientError(answer, "PutObject")
    assert caught.type.__name__ == kind
    if kind == "OSError":
        assert caught.value.errno in retry_module.TRANSIENT_ERRORS


def test_what_prefetch_has_read_is_returned_once(store):
    for i in range(4):
        (store / f"run{i}").write("records", b"old%d\n" % i)
    assert store.prefetch("records") == {f"run{i}" for i in range(4)}
    other = open_store(str(store))
    (other / "run0").write("records", b"new")
    assert (store / "run0").read("records") == b"old0\n", "it was not prefetched"
    assert (store / "run0").read("records") == b"new"
    (store / "run1").append("records", "more")
    assert (store / "run1").read("records") == b"old1\nmore\n"
    assert (store / "run9").read("records") is None


def test_read_ahead_sends_the_requests_together_and_remembers_missing_files(store, monkeypatch):
    (store / "run0").write("config", b"c0")
    barrier = threading.Barrier(4, timeout=60)
    read = S3Store._get
    reads = []

    def read_together(self, name):
        reads.append(name)
        barrier.wait()
        return read(self, name)

    monkeypatch.setattr(S3Store, "_get", read_together)
    store.read_ahead(f"run{i}/{name}" for i in range(2) for name in ("config", "records"))
    assert len(reads) == 4
    assert [(store / "run0").read(name) for name in ("config", "records")] == [b"c0", None]
    assert [(store / "run1").read(name) for name in ("config", "records")] == [None, None]
    assert len(reads) == 4


def test_the_owner_of_a_lock_reads_a_file_once_to_append_to_it(store, monkeypatch):
    child = store / "run"
    reads = []
    read = S3Store._read
    monkeypatch.setattr(S3Store, "_read", lambda self, name: reads.append(name) or read(self, name))
    child.append(LINES, "zero")
    child.append(LINES, "one")
    assert len(reads) == 1, "without a lock another process may append"
    lock = store.lock(".worker-1")
    child.append(LINES, "two")
    child.append(LINES, "three")
    assert len(reads) == 2
    (store / "fresh").append(LINES, "one")
    assert len(reads) == 2
    again = store / "run"
    assert again.read(LINES) == b"zero\none\ntwo\nthree\n"
    again.append(LINES, "four")
    assert len(reads) == 3
    assert child.read(LINES).endswith(b"three\nfour\n")
    again.delete(LINES)
    again.append(LINES, "anew")
    assert again.read(LINES) == b"anew\n"
    lock.close()


def test_an_append_that_failed_after_it_was_written_is_not_written_twice(store, monkeypatch):
    lock = store.lock(".lock")
    put = s3.Bucket.put
    failures = []
    store.append("lines", "one")

    def lose_answer(*args, **options):
        put(*args, **options)
        if not failures:
            failures.append(1)
            raise OSError(errno.EHOSTUNREACH, "the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(s3.Bucket, "put", lose_answer)
        patch.setattr(retry_module.time, "sleep", lambda _: None)
        store.append("lines", "two")
    assert failures
    assert store.read("lines") == b"one\ntwo\n"
    lock.close()


@pytest.mark.parametrize("operation", ["append", "write"])
def test_a_frozen_writer_erases_nothing(store, operation, monkeypatch):
    """B writes while A is frozen between its check of the lock and its request."""
    a = store / "run"
    b = open_store(str(store)) / "run"

    def change(writer, text):
        getattr(writer, operation)("file", text if operation == "append" else text.encode())

    change(a, "1")
    put = s3.Bucket.put

    def frozen(self, key, data, **condition):
        monkeypatch.setattr(s3.Bucket, "put", put)
        change(b, "of B")
        return put(self, key, data, **condition)

    monkeypatch.setattr(s3.Bucket, "put", frozen)
    with pytest.raises(UserError, match="was written by another process"):
        change(a, "2")
    assert b"of B" in b.read("file")
    assert b"2" not in b.read("file")


def test_a_request_whose_answer_was_lost_is_no_conflict(store, monkeypatch):
    """Of a file, of a new file, and of the lock, which is taken and renewed."""
    from botocore.exceptions import ReadTimeoutError
    from botocore.httpsession import URLLib3Session

    send = URLLib3Session.send
    lost = []

    def lossy(self, request):
        response = send(self, request)
        if request.method == "PUT" and request.url not in lost:
            lost.append(request.url)
            raise ReadTimeoutError(endpoint_url=request.url)
        return response

    monkeypatch.setattr(URLLib3Session, "send", lossy)
    store.create("config", b"1")
    store.write("state", b"1")
    lost.clear()
    store.write("state", b"2")
    lock = (store / "run").lock(".lock")
    lost.clear()
    lock._renew()
    lock.check()
    lock.close()
    assert open_store(str(store)).read("state") == b"2"


def test_lock_is_renewed_until_it_is_closed(store, monkeypatch):
    monkeypatch.setattr(s3, "EXPIRY", 1.0)
    lock = store.lock(".lock")
    etags = set()
    wait_until(lambda: etags.add(lock._etag) or len(etags) >= 4)
    lock.close()
    assert store.read(".lock") is None


def test_owner_that_cannot_renew_stops_writing_before_the_lock_expires(store, monkeypatch):
    lock = store.lock(".lock")
    with monkeypatch.context() as patch:
        patch.setattr(lock._bucket, "put", fail)
        lock._renew()
    store.write("state", b"in time")
    lock._renewed_at -= 0.85 * s3.EXPIRY
    with pytest.raises(UserError, match="the lock was lost"):
        store.write("state", b"too late")
    lock.close()
    assert store.read(".lock"), "the lock may belong to another process"


def test_time_in_which_the_machine_is_suspended_counts(store, monkeypatch):
    lock = store.lock(".driver")
    clock_gettime = time.clock_gettime

    def after_a_suspend(clock):
        return clock_gettime(clock) + s3.EXPIRY * (clock == time.CLOCK_BOOTTIME)

    monkeypatch.setattr(s3.time, "clock_gettime", after_a_suspend)
    with pytest.raises(UserError, match="could not be renewed in time"):
        lock.check()
    lock.close()
