"""A sweep into a bucket, under Ray, one of its trials killed, ranks as one into a folder."""

import subprocess
import sys

import pytest

from lmzoo.store.open import open_store
from lmzoo.store.records import CONFIG, LOSSES, RECORDS, STUDY
from lmzoo.store.s3 import S3Store
from tests.store.conftest import bucket, s3_server  # noqa: F401

from .byhand import outcome, sweep
from .conftest import small_study
from .processes import ROOT, finish, kill_a_trial, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


def epochs_in(address: str) -> int:
    """Epoch records of all runs of a study."""
    there = S3Store.at(address.removeprefix("s3://"))
    records = filter(lambda key: key.endswith(RECORDS), there.keys())
    return sum((there.read(key) or b"").count(b'"event": "epoch"') for key in records)


def ranking(address: object) -> str:
    """The table, all digits."""
    rank = [sys.executable, "-m", "lmzoo.cli.rank", str(address), "--format", "csv"]
    return subprocess.run(rank, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_a_trial_killed_in_a_bucket_changes_no_digit(
    bucket,  # noqa: F811
    script,
    sweeping,
    sentences,
    corpus,
    corpus_fields,
    tmp_path,
    monkeypatch,
):
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")  # names of sockets are short
    script.write_text(script.read_text().replace("_study", "small_study"))
    there, here = f"{bucket}/runs/toy-text", tmp_path / "byhand"

    driver = sweeping(storage=f"{bucket}/runs")
    wait_until(lambda: epochs_in(there) >= 3 or driver.poll() is not None, 900)
    assert driver.poll() is None, finish(driver)
    assert kill_a_trial(driver.pid)
    code, _, err = finish(driver, 1800)
    assert code == 0, err

    assert sweep(small_study(sentences), corpus, corpus_fields, here)
    fetched = open_store(there).local_copy([CONFIG, RECORDS, STUDY, LOSSES.format("*")])
    assert outcome(fetched) == outcome(here)
    assert ranking(there) == ranking(here)
    assert "wild type" in ranking(here)
