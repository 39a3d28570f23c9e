"""A sweep into a bucket under Ray, with a killed worker, equals a sweep into a folder."""

# ruff: noqa: F811  pytest needs the imported fixtures as parameter names
import subprocess
import sys

import polars as pl
import pytest

from drills.cluster import ENGINE
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.records import CONFIG, RECORDS, STUDY
from lmzoo.lab.store.s3 import S3Store
from lmzoo.trainables.resolve import store_name
from tests.lab.store.conftest import bucket, s3_server  # noqa: F401
from tests.lab.sweep.conftest import script, start_sweep  # noqa: F401
from tests.lab.sweep.local_sweep import outcome, sweep
from tests.lab.sweep.processes import ROOT, finish, kill_worker, wait_until
from tests.toy_study import corpus, corpus_fields, sentences, small_study  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def epochs_in(address: str) -> int:
    """Return the number of epoch records of all runs."""
    store = open_store(address)
    assert isinstance(store, S3Store)
    files = filter(lambda name: name.endswith(RECORDS), store.names())
    return sum((store.read(name) or b"").count(b'"event": "epoch"') for name in files)


def ranking(address: object) -> list[dict[str, object]]:
    """Return the rows of the ranking with all digits, without the time that they took."""
    rank = [sys.executable, "-m", "lmzoo", "rank", str(address), "--format", "csv"]
    done = subprocess.run(rank, capture_output=True, check=True, cwd=ROOT)
    return pl.read_csv(done.stdout).drop("seconds").to_dicts()


def test_a_killed_worker_does_not_change_the_results_in_a_bucket(
    bucket, script, start_sweep, sentences, corpus, corpus_fields, tmp_path, monkeypatch
):
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")  # the path of a socket must be short
    small = script.read_text().replace("import toy_study", "import small_study")
    script.write_text(small.replace("main(toy_study(", "main(small_study("))
    name = store_name("toy", corpus_fields, corpus.fingerprint)
    address, folder = f"{bucket}/runs/{name}", tmp_path / "undisturbed"

    driver = start_sweep(*ENGINE, storage=f"{bucket}/runs")
    wait_until(lambda: epochs_in(address) >= 3 or driver.poll() is not None, 900)
    assert driver.poll() is None, finish(driver)
    assert kill_worker(driver.pid)
    code, _, err = finish(driver, 1800)
    assert code == 0, err

    assert sweep(small_study(sentences), corpus, corpus_fields, folder)
    fetched = open_store(address).local_copy([CONFIG, RECORDS, STUDY])
    assert outcome(fetched) == outcome(folder)
    assert ranking(address) == ranking(folder)
    assert "wild type" in [row["label"] for row in ranking(folder)]
