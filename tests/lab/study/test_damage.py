"""Whatever is damaged in a store, a table names it, and the next sweep trains it again."""

import contextlib
import random
import shutil
from pathlib import Path

import polars as pl
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store.archive import FOLDER, archive_runs
from lmzoo.lab.store.records import CONFIG, RECORDS
from lmzoo.lab.study.study_store import SETTINGS
from tests.lab.study.test_archive import fast as fast
from tests.lab.study.test_archive import finished as finished
from tests.lab.study.test_archive import sweep

CASES = {"byte": (12, 300), "file": (5, 60), "archive": (5, 20)}
"""Kind of damage -> cases that `make test` tries, and all of them."""


def damage(path: Path, kind: str, draw: random.Random) -> Path:
    """Change a byte of a store, or a file of it; return the file."""
    pattern = f"{FOLDER}/*.zip" if kind == "archive" else "*.*json"
    file = draw.choice(sorted(path.rglob(pattern)))
    data = file.read_bytes()
    at = draw.randrange(len(data) - 1)  # without its last newline a file says the same
    changed = data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    torn = [data[:at], b"", bytes(len(data)), draw.randbytes(len(data)), None]
    content = draw.choice(torn) if kind == "file" else draw.choice([changed, changed, data[:at]])
    if kind == "byte":
        content = changed
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    return file


def numbers(path: Path) -> pl.DataFrame:
    columns = ["run", "event", "epoch", "valid_token", "token", "status"]
    return load_study(path).events.select(columns).sort(columns).collect()


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_damage_is_named_and_trained_again(
    kind, is_whole, finished, tmp_path, study, corpus, corpus_fields, caplog
):
    if kind == "archive":
        runs = [config.parent.name for config in sorted(finished.glob(f"*/{CONFIG}"))]
        finished = shutil.copytree(finished, tmp_path / "archived")
        archive_runs(finished, runs)
    table, expected = study_ranking(finished), numbers(finished)
    for case in range(CASES[kind][is_whole]):
        path, draw = tmp_path / "toy", random.Random(case)
        shutil.copytree(finished, path)
        file = damage(path, kind, draw)
        caplog.clear()
        with contextlib.suppress(UserError):  # one line
            folder = load_study(path)
            report = study_ranking(folder)
            same = report.frame.drop("seconds").equals(table.frame.drop("seconds"))
            counted = report.heading[-1] != table.heading[-1]
            assert same or folder.damaged or counted, (case, file)
        assert sweep(study, corpus, corpus_fields, path), (case, file)
        assert numbers(path).equals(expected), (case, file)
        assert file.name in (SETTINGS, RECORDS) or caplog.text or kind == "archive", (case, file)
        shutil.rmtree(path)
