"""Memory that is freed and allocated again causes no new page faults."""

import ctypes
import subprocess
import sys

import pytest

SCRIPT = """
import resource
from lmzoo.train.memory_plan import retain_freed_memory
assert not {retain} or retain_freed_memory()
def allocate():
    blocks = [bytearray(b'x') * (4 << 20) for _ in range(8)]
allocate(); allocate()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    allocate()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(*, retain: bool) -> int:
    command = [sys.executable, "-c", SCRIPT.format(retain=retain)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return int(process.stdout)


def test_freed_blocks_are_reused() -> None:
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library has no mallopt")
    assert _page_faults(retain=True) * 10 < _page_faults(retain=False)
