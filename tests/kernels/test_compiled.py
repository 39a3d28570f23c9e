"""Compiled loops are kept where they can be, and do without where they cannot."""

import secrets
import subprocess
import sys
from pathlib import Path
from typing import no_type_check

import pytest
from numba.core.caching import CacheImpl

from lmzoo.kernels.cpu import compiled as module
from lmzoo.kernels.cpu import word_mixture
from lmzoo.kernels.cpu.compiled import compiled


@no_type_check
def twice(x):
    return 2 * x


def test_a_loop_is_kept_for_the_next_process() -> None:
    assert compiled(twice).stats.cache_path


def test_where_nothing_can_be_written_it_is_compiled_for_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled(twice)(3) == 6


def test_a_process_that_needs_no_loop_compiles_none() -> None:
    """Nor does it import what compiles: half a second of every command line."""
    ask = "import lmzoo.zoo, sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert word_mixture.score.stats.cache_path


def test_what_was_kept_is_not_taken_for_other_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop's own file says nothing of those whose loops it calls."""

    def loads() -> int:
        again = compiled(twice)
        assert again(3) == 6
        return sum(again.stats.cache_hits.values())

    loads()
    assert loads() == 1
    others = secrets.token_hex()  # such as no earlier run kept anything for
    monkeypatch.setattr(module, "sources", lambda: others)
    assert loads() == 0
    assert loads() == 1


def test_every_source_of_loops_counts() -> None:
    before = module.sources()
    added = Path(module.__file__).with_name("added_by_a_test.py")
    added.write_text("")
    try:
        assert module.sources() == before  # an empty file changes no loop
        added.write_text("x = 1")
        assert module.sources() != before
    finally:
        added.unlink()
