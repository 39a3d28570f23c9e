"""Kernels are cached on disk where a folder is writable, and compiled per process elsewhere."""

import secrets
import subprocess
import sys
from pathlib import Path

from numba.core.caching import CacheImpl

from lmzoo.kernels.cpu import compiled as module
from lmzoo.kernels.cpu import tied_softmax
from lmzoo.kernels.cpu.compiled import compiled


def twice(x):
    return 2 * x


def test_a_kernel_is_cached_for_the_next_process():
    assert compiled(twice).stats.cache_path


def test_a_kernel_runs_when_no_cache_folder_is_writable(monkeypatch):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled(twice)(3) == 6


KERNEL = """
import sys
from lmzoo.kernels.cpu.compiled import compiled

@compiled
def quick(x):
    return 2 * x

@compiled
def slow(x):
    y = x
%s
    return y

quick(3.0)
print("ready", flush=True)
sys.stdin.readline()
slow(3.0)
print(sum(slow.stats.cache_misses.values()))
""" % (100 * "    y = y * y + x / (1.0 + y)\n")
"""The compiler has started before the slow kernel is compiled, which takes a second."""


def test_one_of_several_processes_compiles_a_kernel(tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    pipe = subprocess.PIPE
    command = [sys.executable, str(script)]
    options = {"stdin": pipe, "stdout": pipe, "text": True}
    processes = [subprocess.Popen(command, **options) for _ in range(3)]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all at once
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in processes]
    compilations = sorted(int(output) for output in outputs)
    # The others wait and read what it wrote.
    assert compilations == [0, 0, 1]


def test_a_kernel_is_compiled_if_another_process_does_not_end(monkeypatch):
    new_hash = secrets.token_hex()  # one that no earlier run has cached
    monkeypatch.setattr(module, "hash_sources", lambda: new_hash)
    monkeypatch.setattr(module, "WAIT", 0.2)
    kernel = compiled(twice)
    other = compiled(twice)
    # As a process that compiles holds it.
    with other._cache._lock:
        assert kernel(3) == 6
    misses = kernel.stats.cache_misses
    assert sum(misses.values()) == 1


def test_importing_the_zoo_does_not_import_numba():
    """Importing numba would add half a second to every command."""
    code = "import lmzoo.zoo, sys; print('numba' in sys.modules)"
    command = [sys.executable, "-c", code]
    output = subprocess.check_output(command, text=True)
    assert output.strip() == "False"
    assert tied_softmax.forward.stats.cache_path


def test_a_changed_source_invalidates_the_cache(monkeypatch):
    """A kernel calls kernels of other files, which numba itself does not check."""

    def cache_hits():
        kernel = compiled(twice)
        assert kernel(3) == 6
        return sum(kernel.stats.cache_hits.values())

    # The first call may compile.
    cache_hits()
    assert cache_hits() == 1
    new_hash = secrets.token_hex()  # one that no earlier run has cached
    monkeypatch.setattr(module, "hash_sources", lambda: new_hash)
    assert cache_hits() == 0
    assert cache_hits() == 1


def test_the_hash_covers_every_file_of_the_folder():
    before = module.hash_sources()
    added = Path(module.__file__).with_name("added_by_a_test.py")
    added.write_text("")
    try:
        assert module.hash_sources() == before  # an empty file changes no kernel
        added.write_text("x = 1")
        assert module.hash_sources() != before
    finally:
        added.unlink()
