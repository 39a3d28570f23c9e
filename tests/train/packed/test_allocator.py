"""What is freed and asked for again is not given anew by the system."""

import ctypes
import subprocess
import sys

import pytest

CYCLE = """
import resource
from lmzoo.train.packed.allocator import keep_freed
assert not {keep} or keep_freed()
def cycle():
    blocks = [bytearray(b'x') * (4 << 20) for _ in range(8)]
cycle(); cycle()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    cycle()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(*, keep: bool) -> int:
    code = [sys.executable, "-c", CYCLE.format(keep=keep)]
    done = subprocess.run(code, capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


def test_blocks_are_used_again() -> None:
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library has no mallopt")
    assert _faults(keep=True) * 10 < _faults(keep=False)
