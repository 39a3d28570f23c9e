"""README's ten lines and the notebook have the same numbers in any process of the user's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lmzoo.lab.statistics.ties import TIE
from tests.docs.pages import ROOT
from tests.odd_process import KINDS


def numbers(kind: str, folder: Path) -> list[dict[str, Any]]:
    """Return what a new process prints in a folder of its own."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.odd_process", kind]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    # Other lines are the progress of trainings.
    last_line = done.stdout.splitlines()[-1]
    return json.loads(last_line)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("plain")
    return numbers("plain", folder / "own")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "plain"])
def test_the_numbers_are_those_of_a_usual_process(kind, plain, tmp_path):
    found = numbers(kind, tmp_path / "own")
    for own, usual in zip(found, plain, strict=True):
        # Of a study, packs are those that workers happened to form, so sums have another order.
        assert own["ranking"] == pytest.approx(usual["ranking"], rel=TIE)
        assert own | {"ranking": None} == usual | {"ranking": None}
