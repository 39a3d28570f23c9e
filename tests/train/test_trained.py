"""The model of a run of other numerics is not opened as one of now."""

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store.records import CONFIG, NUMERICS, RunFolder, write_json
from lmzoo.train.trained import read_model_config


def test_only_runs_of_these_numerics_are_opened(tmp_path):
    config = {"model": {"name": "recurrent_lm"}, "corpus": {}, "fingerprint": ""}
    write_json(tmp_path / CONFIG, {**config, "numerics": NUMERICS})
    assert read_model_config(RunFolder(tmp_path)).width
    write_json(tmp_path / CONFIG, {**config, "numerics": NUMERICS - 1})
    with pytest.raises(UserError, match="numerics 1, this version has 2; use the version of lmzoo"):
        read_model_config(RunFolder(tmp_path))
