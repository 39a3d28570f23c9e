"""Every benchmark at tiny sizes: does it still run?

    python benchmarks/smoke.py [NAME ...]

It measures nothing. `make test` runs it, so that no script breaks unnoticed.
"""

import argparse
import contextlib
import importlib.util
import io
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from lmzoo.base.streams import echo

HERE = Path(__file__).parent
RECORD = str(HERE.parent / "docs/results/records/gru_ablation-captions.parquet")
RIVALS = "--help"
if importlib.util.find_spec("jax"):
    RIVALS = "--tiny --rounds 1 --out OUT/rivals.json"
APART = {
    "crash_test/train": "OUT/curves --tasks parity --packs 1 --members 2",
    "gpu_resources": "--only mgu --width 32",
    "launches": "--rows lstm_lm --out OUT/launches.json",
    "roofline": "--out OUT/roofline.md --tiny",
}
"""Scripts with a process of their own: they change how Triton and torch run, or start workers."""
SMALL = {
    "crash_test/page": "--studies 1 --share 0.02 --length 5 --page OUT/crash_test.md",
    "crash_test/trainings": "OUT/curves --out OUT/trainings.parquet",  # those of crash_test/train
    "choice": "--samples 5 --studies 1 --only flat --out OUT/choice.md",
    "cluster": "--only '8 offered' --device gpu --tiny",
    "driver": "OUT/store --points 2 --samples 2 --seeds 2",
    "further": "--studies 1",
    "fuse": "--rounds 1 --rows DLM46 --out OUT/fuse.json",
    "gpu": "--device cpu --tiny --rounds 1 --parts scan --out OUT",
    "growth": "--runs 20 --points 3 --folder OUT/growth --only rank,Optuna,mlruns,DuckDB",
    "longer": "",
    "publish": "--folder OUT --page OUT/page.md",
    "repeats": "RECORD RECORD RECORD",
    "rivals": RIVALS,
    "rows": "--rounds 1 --row lstm_lm",
    "search": "--studies 2 --only cliff --rules grid --out OUT/search.md",
    "solved": "--tables 1 --seeds 3",
    "transformer_toy": "--steps 1 --tests 1 --layers 1 --only pre-LN",
    "verdicts": "--studies 1 --points 6 --conditions equal --seeds 3",
    "worker": "--runs 4 --epochs 3 --out OUT/worker.json",
    "worst_noise": "--points 3 --seeds 3 --tables 2 --rounds 1",
    "walks": "--parts 2 --free 1 --seeds 3 --walks 2 --rounds 1",
}
"""The arguments of each script; OUT is a temporary folder, RECORD the records of a study."""


def run_here(name: str, words: list[str]) -> str | None:
    """Run a script as `python benchmarks/NAME.py WORDS` does; return why it failed."""
    sys.argv = [f"{name}.py", *words]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")
    except SystemExit as end:
        if end.code not in (0, None):
            return f"exit code {end.code}: {printed.getvalue()[-500:]}"
    except BaseException:
        return traceback.format_exc()
    if not printed.getvalue().strip():
        return "it printed nothing"
    return None


def run_apart(name: str, words: list[str]) -> str | None:
    """Run a script in a process of its own; return why it failed."""
    command = [sys.executable, str(HERE / f"{name}.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr[-500:]}"
    return None


def main() -> int:
    """Run all scripts; print each with its seconds. Return 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="which benchmarks; none: all")
    names = parser.parse_args().names
    known = set()
    for path in HERE.rglob("*.py"):
        if "__main__" in path.read_text():
            known.add(str(path.relative_to(HERE).with_suffix("")))
    unlisted = known - {*APART, *SMALL, "smoke"}
    if unlisted:
        echo(f"no arguments are listed for {', '.join(sorted(unlisted))}")
        return 1
    sys.path[:0] = [str(HERE), str(HERE.parent)]  # scripts import their neighbours
    failed = False
    with tempfile.TemporaryDirectory() as out:
        (Path(out) / "page.md").write_text("<!-- bench:fuse -->\n<!-- /bench:fuse -->\n")
        for name, arguments in {**APART, **SMALL}.items():
            if names and name not in names:
                continue
            start = time.perf_counter()
            words = shlex.split(arguments.replace("OUT", out).replace("RECORD", RECORD))
            if name in APART:
                reason = run_apart(name, words)
            else:
                reason = run_here(name, words)
            echo(f"{time.perf_counter() - start:6.1f} s  {name}: {reason or 'runs'}")
            failed = failed or reason is not None
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
