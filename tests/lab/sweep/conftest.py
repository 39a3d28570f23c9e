"""The fixtures of the toy study, and the toy study as a script."""

import subprocess
from pathlib import Path

import pytest

from tests.toy_study import corpus as corpus
from tests.toy_study import corpus_fields as corpus_fields
from tests.toy_study import planner as planner
from tests.toy_study import sentences as sentences
from tests.toy_study import study as study
from tests.toy_study import undisturbed as undisturbed

from .processes import ROOT, kill, start


@pytest.fixture
def script(tmp_path, sentences, monkeypatch) -> Path:
    """The toy study as a script that any process can run."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "toy.py"
    path.write_text(
        "from pathlib import Path\n"
        "from lmzoo import main\n"
        "from tests.toy_study import toy_study\n"
        "if __name__ == '__main__':\n"
        f"    main(toy_study(Path({str(sentences)!r})))\n"
    )
    return path


@pytest.fixture
def start_sweep(script, tmp_path):
    """Starts the script with these options; its store is below `runs`, its output in pipes."""
    processes: list[subprocess.Popen[str]] = []

    def start_script(*options: str, storage: str = "") -> subprocess.Popen[str]:
        folder = storage or str(tmp_path / "runs")
        processes.append(start(script, "--out", folder, "--json", "--fuse", "off", *options))
        return processes[-1]

    yield start_script
    for process in processes:
        kill(process)
