"""A bucket is a place like any folder, and its lease a lock like any other."""

import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lmzoo.errors import UserError
from lmzoo.store import retry as persist
from lmzoo.store import s3 as bucket_module
from lmzoo.store import s3_lock as lease
from lmzoo.store.local import Store
from lmzoo.store.open import open_store
from tests.sweep.processes import wait_until

# moto's own server leaves sockets to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def there(bucket):
    return open_store(f"{bucket}/a/b")


def test_an_address_survives_what_paths_do_to_it(bucket):
    by_path = open_store(Path(f"{bucket}/a") / "b")
    assert str(by_path) == f"{bucket}/a/b" == by_path.address
    assert type(open_store("runs/a")) is Store


def test_what_is_written_is_read_elsewhere_and_the_one_before_is_kept(there):
    assert there.read("state") is None
    for text in (b"one", b"two"):
        there.write("state", text, keep="before")
    there.append("lines", "first")
    there.append("lines", "second")
    elsewhere = open_store(str(there))
    assert (elsewhere.read("state"), elsewhere.read("before")) == (b"two", b"one")
    assert elsewhere.read("lines") == b"first\nsecond\n"
    there.delete("state", "before", "never")
    assert elsewhere.read("state") is None


def test_what_is_fetched_is_what_was_asked_for_from_all_below(there, monkeypatch):
    for i in range(3):
        (there / f"run{i}").write("config.json", b"c%d" % i)
        (there / f"run{i}").write("checkpoint.pt", b"heavy")
    there.write("study.json", b"s")
    (open_store(f"{there}c")).write("config.json", b"another prefix that begins alike")
    found = there.local_copy(["config.json", "study.json"])
    names = {str(p.relative_to(found)): p.read_bytes() for p in found.rglob("*") if p.is_file()}
    assert names == {
        "run0/config.json": b"c0", "run1/config.json": b"c1", "run2/config.json": b"c2",
        "study.json": b"s",
    }  # fmt: skip


def test_a_second_holder_is_refused_with_the_first_ones_name(there):
    held = there.lock(".driver")
    with pytest.raises(UserError, match=r"a/b is in use by process \d+ on \S+; wait"):
        open_store(str(there)).lock(".driver")
    held.close()
    open_store(str(there)).lock(".driver").close()


def test_of_many_who_want_it_one_gets_it(there):
    got, refused = [], []

    def want():
        try:
            got.append(open_store(str(there)).lock(".lock"))
        except UserError:
            refused.append(1)

    crowd = [threading.Thread(target=want) for _ in range(6)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    assert (len(got), len(refused)) == (1, 5)
    got[0].close()


def test_a_lease_is_renewed_while_it_is_held(there, monkeypatch):
    monkeypatch.setattr(lease, "LASTS", 1.0)
    held = there.lock(".lock")
    wait_until(lambda: held._count >= 4)
    held.close()
    assert there.read(".lock") is None


def test_a_lease_that_was_taken_over_ends_the_writing_of_the_first(there, monkeypatch):
    first, second = open_store(str(there)), open_store(str(there))
    held = first.lock(".lock")
    first.write("state", b"first")
    with monkeypatch.context() as patch:
        patch.setattr(lease, "LASTS", -1.0)  # whatever its age, it is over
        taken = second.lock(".lock")
    held._renew()
    with pytest.raises(UserError, match="no longer held: its lease could not be renewed"):
        first.write("state", b"too late")
    with pytest.raises(UserError, match="no longer held"):
        first.append("lines", "too late")
    held.close()  # does not take the other's
    second.write("state", b"second")
    assert there.read("state") == b"second"
    with pytest.raises(UserError, match="in use"):
        there.lock(".lock")
    taken.close()


def test_a_holder_that_cannot_renew_stops_writing_before_another_may_take_over(there, monkeypatch):
    held = there.lock(".lock")
    monkeypatch.setattr(held, "_call", lambda *_, **__: (_ for _ in ()).throw(OSError("cut off")))
    held._renew()
    there.write("state", b"in time")
    held._sure -= 0.85 * lease.LASTS
    with pytest.raises(UserError, match="no longer held"):
        there.write("state", b"too late")
    held.close()


def test_errors_name_the_place_and_the_cause(bucket, monkeypatch):
    with pytest.raises(UserError, match="names no bucket"):
        open_store("s3://")
    with pytest.raises(UserError, match=r"s3://no-such-bucket/x/a: S3 refuses .*NoSuchBucket"):
        open_store("s3://no-such-bucket/x").write("a", b"")
    monkeypatch.setattr(persist, "PATIENCE", 0.1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    bucket_module._client.cache_clear()
    with pytest.raises(UserError, match="S3 does not answer"):
        open_store(f"{bucket}/x").read("a")


def test_the_scratch_folder_is_of_this_process_alone(there, tmp_path):
    assert there.path.is_relative_to(tmp_path)
    own = there.path.parents[2]
    assert own.parent == tmp_path
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert open_store(str(there)).path == there.path, "a run is opened again in the same process"
    code = (
        "import os, sys; from lmzoo.store.open import place\n"
        "mine = place(sys.argv[1]).path.parents[2]; child = os.fork()\n"
        "if not child: print(place(sys.argv[1]).path.parents[2]); sys.exit()\n"
        "os.waitpid(child, 0); print(mine); print(mine.exists())"
    )
    asked = [sys.executable, "-c", code, str(there)]
    out = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    forked, mine, outlived_its_child = out
    assert len({forked, mine, str(own)}) == 3
    assert outlived_its_child == "True"
    assert not Path(mine).exists()
    assert not Path(forked).exists()
    assert own.exists()


def test_what_is_shared_is_put_there_and_away_here(there, monkeypatch):
    there.path.mkdir(parents=True)
    (there.path / "events.1").write_bytes(b"curve")
    with monkeypatch.context() as patch:
        patch.setattr(there, "_call", lambda *_, **__: (_ for _ in ()).throw(OSError("away")))
        there.publish("events.*")
    assert (there.path / "events.1").exists()
    there.publish("events.*")
    assert there.read("events.1") == b"curve"
    assert not list(there.path.iterdir())


def test_what_is_recalled_is_read_at_once_and_given_once(there, monkeypatch):
    for i in range(4):
        (there / f"run{i}").write("records", b"old%d\n" % i)
    met, read = threading.Barrier(4, timeout=60), bucket_module.S3Store._read

    def together(self, name):
        met.wait()
        return read(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(bucket_module.S3Store, "_read", together)
        there.prefetch("records")
    elsewhere = open_store(str(there))
    (elsewhere / "run0").write("records", b"new")
    assert (there / "run0").read("records") == b"old0\n", "it was not recalled"
    assert (there / "run0").read("records") == b"new"
    (there / "run1").append("records", "more")
    assert (there / "run1").read("records") == b"old1\nmore\n"
    assert (there / "run9").read("records") is None
