"""Time and memory of a long text, with and without its cache.

    python benchmarks/tokens.py             one contiguous text of 100 million characters
    python benchmarks/tokens.py --lines     922,000 lines of 10 words, 58 MB

Each row is a process of its own, which opens the corpus, computes its fingerprint and draws the
blocks of an epoch. Memory is the largest resident set of the process; the second number leaves out
what it had after its imports.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LINES, WORDS = 922_000, 30_000
ALPHABET = b"etaoinshrdlucmfwypvbgkjqxz ETAOIN.,;\n"


def main() -> None:
    """Write a random text, open it three times, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100_000_000, help="Characters of the text.")
    parser.add_argument("--lines", action="store_true", help="Lines of words.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        if options.lines:
            write_lines(text)
        else:
            write_characters(text, options.size)
        for name in ("first start", "from the cache", "from the cache"):
            environment = {**os.environ, "LMZOO_CACHE": str(Path(folder, "cache"))}
            spec = f"{'text' if options.lines else 'stream'}:{text}"
            command = [sys.executable, __file__, "--open", spec]
            done = subprocess.run(command, env=environment, capture_output=True, check=True)
            sys.stdout.write(f"{name:15} {json.loads(done.stdout)}\n")


def write_characters(text: Path, size: int) -> None:
    """Write random letters."""
    letters = np.frombuffer(ALPHABET, dtype=np.uint8)
    random = np.random.default_rng(0)
    with text.open("wb") as file:
        for first in range(0, size, 10_000_000):
            count = min(10_000_000, size - first)
            file.write(random.choice(letters, count).tobytes())


def write_lines(text: Path) -> None:
    """Write random words of 3 to 8 letters; their frequencies follow Zipf's law."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = np.array(["".join(random.choice(letters, n)) for n in random.integers(3, 9, WORDS)])
    chance = 1 / np.arange(1, WORDS + 1)
    with text.open("w") as file:
        for _ in range(LINES // 1000):
            drawn = random.choice(words, (1000, 10), p=chance / chance.sum())
            file.writelines(f"{' '.join(line)}\n" for line in drawn)


def open_text(spec: str) -> dict[str, float]:
    """Return the seconds and the memory of each step."""
    import torch

    from lmzoo.data.corpus import open_corpus

    torch.set_num_threads(1)
    before, start, cpu = peak_megabytes(), time.perf_counter(), time.process_time()
    corpus = open_corpus(spec)
    opened, cpu = time.perf_counter(), time.process_time() - cpu
    len(corpus.fingerprint)
    hashed = time.perf_counter()
    assert len(corpus.train.for_epoch(0))
    return {
        "open s": round(opened - start, 2),
        "open CPU s": round(cpu, 2),
        "fingerprint s": round(hashed - opened, 2),
        "epoch s": round(time.perf_counter() - hashed, 2),
        "peak MB": peak_megabytes(),
        "peak MB beyond imports": peak_megabytes() - before,
    }


def peak_megabytes() -> int:
    """Return the largest resident set of this process so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--open"]:
        sys.stdout.write(json.dumps(open_text(sys.argv[2])))
    else:
        main()
