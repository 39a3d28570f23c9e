"""The fixtures of the toy study, and a sweep without training."""

import functools

import pytest

from tests.lab.sweep.fake_runs import open_fake_run
from tests.lab.sweep.local_sweep import sweep
from tests.toy_study import corpus as corpus
from tests.toy_study import corpus_fields as corpus_fields
from tests.toy_study import planner as planner
from tests.toy_study import sentences as sentences
from tests.toy_study import study as study
from tests.toy_study import undisturbed as undisturbed


@pytest.fixture
def fake_sweep(corpus, corpus_fields, tmp_path):
    """Sweeps a study with runs that train nothing, into the test's folder unless one is given."""
    return functools.partial(
        sweep, corpus=corpus, fields=corpus_fields, open_run=open_fake_run, path=tmp_path
    )
