"""The model of a run of numerics 1 is opened if its parts have the form that is left."""

from pathlib import Path
from typing import Any

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store.records import CONFIG, NUMERICS, RunFolder, write_json
from lmzoo.train.trained import read_model_config

MAMBA = {"name": "mamba", "states": 4, "cuts": ["gate"]}
PRESENT = {**MAMBA, "reference": True}


def read(folder: Path, cell: Any, numerics: int = 1) -> Any:
    """Return the cell's config of a run with this cell."""
    model = {"name": "recurrent_lm", "cell": cell}
    config = {"model": model, "numerics": numerics, "corpus": {}, "fingerprint": ""}
    write_json(folder / CONFIG, config)
    return read_model_config(RunFolder(folder)).cell


def test_a_cell_with_the_reference_form_is_that_of_now(tmp_path: Path) -> None:
    now = read(tmp_path, MAMBA, NUMERICS)
    assert read(tmp_path, PRESENT) == now
    assert read(tmp_path, {"name": "block", "inner": PRESENT}).inner == now


def test_a_cell_without_an_earlier_form_is_that_of_now(tmp_path: Path) -> None:
    assert read(tmp_path, "gru") == read(tmp_path, "gru", NUMERICS)


@pytest.mark.parametrize("cell", [MAMBA, {**MAMBA, "reference": False}])
@pytest.mark.parametrize("inside", [False, True])
def test_a_cell_of_the_earlier_form_is_refused(
    cell: dict[str, Any], *, inside: bool, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="a mamba of an earlier form"):
        read(tmp_path, {"name": "block", "inner": cell} if inside else cell)
