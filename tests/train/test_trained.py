"""The model of a run of other numerics is not opened as one of now."""

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store.records import CONFIG, NUMERICS, RunFolder, json_bytes
from lmzoo.train.trained import read_model_config


def test_only_runs_of_these_numerics_are_opened(tmp_path):
    config = {"model": {"name": "recurrent_lm"}, "corpus": {}, "fingerprint": ""}
    (tmp_path / CONFIG).write_bytes(json_bytes({**config, "numerics": NUMERICS}))
    assert read_model_config(RunFolder(tmp_path)).width
    (tmp_path / CONFIG).write_bytes(json_bytes({**config, "numerics": NUMERICS - 1}))
    with pytest.raises(UserError, match="numerics 1, this version has 2; use the version of lmzoo"):
        read_model_config(RunFolder(tmp_path))


def test_a_run_whose_settings_are_read_as_others_is_not_opened(tmp_path):
    cell = {"name": "gru", "update": "z_writes"}  # the weights of z have the other sign
    model = {"name": "recurrent_lm", "width": 4, "cell": cell}
    run = {"model": model, "corpus": {}, "fingerprint": "", "numerics": NUMERICS}
    (tmp_path / CONFIG).write_bytes(json_bytes(run))
    with pytest.raises(UserError, match="update=z_writes"):
        read_model_config(RunFolder(tmp_path))
    cell |= {"update": "z_keeps", "cuts": ["reset", "reset_bias"]}
    (tmp_path / CONFIG).write_bytes(json_bytes(run))
    assert read_model_config(RunFolder(tmp_path)).cell.cuts == {"reset"}
