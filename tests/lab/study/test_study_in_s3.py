"""A study in a bucket that is interrupted and continued equals a study in a folder."""

# ruff: noqa: F811  fixtures are imported, and then requested by name
import dataclasses
from contextlib import closing

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import TABLE_FILES
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store.local import open_store
from lmzoo.lab.store.records import CHECKPOINT
from lmzoo.lab.study.study_store import SETTINGS, StudyStore
from tests.lab.store.conftest import bucket, s3_server  # noqa: F401
from tests.lab.sweep.local_sweep import outcome, sweep

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def test_an_interrupted_study_in_a_bucket_equals_a_study_in_a_folder(
    bucket, study, corpus, corpus_fields, tmp_path
):
    small = dataclasses.replace(study, points=study.points[:2], samples=2)
    address, folder = f"{bucket}/runs/toy-text", tmp_path / "toy-text"
    assert not sweep(small, corpus, corpus_fields, address, steps=7)
    assert not sweep(small, corpus, corpus_fields, address, steps=5)
    assert sweep(small, corpus, corpus_fields, address)
    assert sweep(small, corpus, corpus_fields, folder)

    fetched = open_store(address).local_copy([*TABLE_FILES, SETTINGS])
    assert outcome(fetched) == outcome(folder)
    assert (fetched / "study.json").read_bytes() == (folder / "study.json").read_bytes()
    assert (fetched / SETTINGS).read_bytes() == (folder / SETTINGS).read_bytes()
    assert not list(fetched.glob(f"*/{CHECKPOINT}"))
    assert len(list(fetched.glob("*/test-*.npy"))) == 2 * (2 + 2)  # the baselines included
    rankings = [study_ranking(store).frame.drop("seconds") for store in (address, folder)]
    assert rankings[0].equals(rankings[1])


def test_a_second_sweep_on_a_bucket_is_refused(bucket):
    refused = pytest.raises(UserError, match=r"toy-text is in use by process \d+ on ")
    with closing(StudyStore(f"{bucket}/toy-text")), refused:
        StudyStore(f"{bucket}/toy-text")
    StudyStore(f"{bucket}/toy-text").close()
