"""A study in a bucket: cut off and gone on with, it is the same to the last digit."""

import dataclasses
from contextlib import closing

import pytest

from lmzoo.analysis.load import NAMES
from lmzoo.cli.rank import render_study
from lmzoo.errors import UserError
from lmzoo.store.open import open_store
from lmzoo.store.records import CHECKPOINT
from lmzoo.sweep.study_store import SETTINGS, StudyStore
from lmzoo.train.run import Run
from tests.store.conftest import bucket, s3_server  # noqa: F401

from .byhand import outcome, sweep

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def test_a_study_in_a_bucket_equals_one_in_a_folder(bucket, study, corpus, corpus_fields, tmp_path):  # noqa: F811
    small = dataclasses.replace(study, points=study.points[:2], samples=2)
    there, here = f"{bucket}/runs/toy-text", tmp_path / "toy-text"
    assert not sweep(small, corpus, corpus_fields, there, steps=7)
    assert not sweep(small, corpus, corpus_fields, there, steps=5)
    assert sweep(small, corpus, corpus_fields, there)
    assert sweep(small, corpus, corpus_fields, here)

    fetched = open_store(there).local_copy([*NAMES, SETTINGS])
    assert outcome(fetched) == outcome(here)
    assert (fetched / "study.json").read_bytes() == (here / "study.json").read_bytes()
    assert (fetched / SETTINGS).read_bytes() == (here / SETTINGS).read_bytes()
    assert not list(fetched.glob(f"*/{CHECKPOINT}"))
    assert len(list(fetched.glob("*/test-*.npy"))) == 2 * (2 + 2)  # floors too
    assert render_study(there, "csv") == render_study(here, "csv")


def test_a_damaged_checkpoint_in_a_bucket_falls_back_too(bucket, study, corpus, corpus_fields):  # noqa: F811
    from lmzoo.sweep.planner import Planner
    from lmzoo.sweep.resolve import resolve

    with closing(StudyStore(f"{bucket}/toy-text")) as store:
        job = Planner(study, resolve(study, corpus, corpus_fields), corpus, store).next()
        assert job is not None
        run = Run(store.run(job.run), job.config, corpus)
        list(run.train(3))
        run.close()
        store.run(job.run).store.write(CHECKPOINT, b"cut off")
        again = Run(store.run(job.run), job.config, corpus)
        assert again.epoch == 2
        list(again.train(3))
        again.close()
        kept = [(r["event"], r["epoch"]) for r in store.run(job.run).records()]
        assert sorted(kept) == [("epoch", 1), ("epoch", 2), ("epoch", 3), ("note", 2)]


def test_a_second_driver_is_refused(bucket):  # noqa: F811
    refused = pytest.raises(UserError, match=r"toy-text is in use by process \d+ on ")
    with closing(StudyStore(f"{bucket}/toy-text")), refused:
        StudyStore(f"{bucket}/toy-text")
    StudyStore(f"{bucket}/toy-text").close()


def test_a_store_with_damaged_settings_opens_and_suggests_them_anew(
    study, corpus, corpus_fields, tmp_path
):
    assert sweep(study, corpus, corpus_fields, tmp_path / "whole")
    assert not sweep(study, corpus, corpus_fields, tmp_path / "cut", steps=12)
    path = tmp_path / "cut" / SETTINGS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\xff{torn\n", *lines[2:], b'{"point":']))
    assert sweep(study, corpus, corpus_fields, tmp_path / "cut")
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")
