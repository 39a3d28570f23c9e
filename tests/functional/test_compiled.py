"""Compiled loops are kept where they can be, and do without where they cannot."""

import subprocess
import sys
from typing import no_type_check

import pytest
from numba.core.caching import CacheImpl

from lmzoo.functional.kernels import word_mixture
from lmzoo.functional.kernels.compiled import compiled


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
