"""The benchmark of long texts runs, and its second process reads the cache."""

import json
import subprocess
import sys
from pathlib import Path

from lmzoo.data.encoded_splits import CACHED_FROM

BENCHMARK = Path(__file__).parents[2] / "benchmarks/tokens.py"


def test_a_long_text_is_opened_from_its_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("to be or not " * (CACHED_FROM // 13 + 1))
    folders, rows = list[set[Path]](), list[dict]()
    for _ in range(2):
        command = [sys.executable, str(BENCHMARK), "--open", f"stream:{text}"]
        done = subprocess.run(command, capture_output=True, check=True)
        rows.append(json.loads(done.stdout))
        folders.append(set((tmp_path / "cache/tokens").iterdir()))
    assert len(folders[0]) == 1
    assert folders[0] == folders[1]
    # One byte a character: the ids, the blocks of a pass and those of an epoch.
    assert all(row["peak MB beyond imports"] < 12 * CACHED_FROM / 2**20 for row in rows)
