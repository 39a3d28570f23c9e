"""What a stranger sends: damaged studies and hostile names, and nothing that they reach.

    python -m drills.strangers                 10,000 damages and 200 names on each road, minutes
    python -m drills.strangers --smoke         a few of each, as `make test` runs it

A case is held if it ends with a result or a `UserError` within `SECONDS`, and if nothing is written
outside of the folder that it may write. The last lines are a table for docs/guarantees/security.md.
"""

import argparse
import contextlib
import functools
import random
import shutil
import signal
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.command_line import OF_THE_MACHINE
from lmzoo.base.errors import UserError
from lmzoo.base.foreign import below
from lmzoo.base.streams import echo
from lmzoo.lab.analysis.frames import rank
from lmzoo.lab.analysis.load import TABLE_FILES, load_study
from lmzoo.lab.analysis.study_parquet import restore_study, save_study
from lmzoo.lab.store import s3
from lmzoo.lab.store.archive import archive_runs, archives, restore_run
from lmzoo.lab.store.labels import file_name
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.pack_files import PREFIX, SEGMENT, unpack_all
from lmzoo.lab.store.records import record_line
from lmzoo.lab.store.user_code import load
from tests.lab.analysis.toy_study import ToyStudy

SECONDS = 20
DAMAGES, NAMES = 10_000, 200
PIECES = (
    "..", ".", "", "/", "//", "\\", "C:", "c:\\", "~", "~root", "etc", "passwd", "\0", "\n",
    "\x1b[2J", "\u202e", "\u200b", "\ud800", "nul", "CON.json", "x.", "x ", "x" * 300, "é" * 200,
    "e\u0301", "config.json", "records.ndjson", "study.json", "ended", ".git", "hooks", "a", "A",
    "$(id)", "%2e%2e",
)  # fmt: skip


def names(count: int, outside: Path) -> Iterator[str]:
    """Yield hostile names; the first ones are the usual ones."""
    yield from (
        "../x",
        "../../x",
        f"{outside}/x",
        "a/../../x",
        "..\\x",
        "C:/x",
        "../../../x",
        "x\0y",
    )
    draw = random.Random(1)
    for _ in range(count - 8):
        parts = [draw.choice(PIECES) for _ in range(draw.randint(1, 5))]
        yield draw.choice(["/", "/", "//", "\\"]).join(parts)


def study(folder: Path) -> ToyStudy:
    """Write a study of two points and return it."""
    toy = ToyStudy(folder)
    toy.add_points("full: 3.0 3.01 3.02\ncarry: 3.5 3.51 3.52")
    toy.write()
    return toy


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return a content with a damage of one of seven kinds."""
    at, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    kind = draw.randrange(7)
    if kind == 0:
        return content[:at]
    if kind == 1 and content:
        byte = content[at - 1] ^ 1 << draw.randrange(8)
        return content[: at - 1] + bytes([byte]) + content[at:]
    if kind == 2:
        return content[:at] + draw.randbytes(draw.randrange(64)) + content[end:]
    if kind == 3:
        return content[:end] + content[at:]
    values = [
        b"null",
        b"[]",
        b"{}",
        b'"x"',
        b"1e999",
        b"-1",
        b"9" * 30,
        b"[" * 3000,
        b"NaN",
        b"true",
    ]
    if kind == 4:  # another value of a field
        places = [i for i, byte in enumerate(content) if byte == ord(":")]
        place = draw.choice(places or [at])
        stop = min(
            (i for i in (content.find(m, place) for m in (b",", b"}")) if i >= 0), default=place
        )
        return content[: place + 1] + draw.choice(values) + content[stop:]
    return content.replace(
        *draw.choice([(b"epoch", b"\xff"), (b"0", b"00"), (b'"', b"'"), (b"1", b"-")]), 1
    )


class Tried:
    """Counts of cases and of those that were held, by kind."""

    def __init__(self) -> None:
        self.tried, self.held = Counter[str](), Counter[str]()
        self.faults: list[str] = []

    def case(
        self, kind: str, what: str, action: Callable[[], object], root: Path, own: Sequence[Path]
    ) -> None:
        """Try a case, which may write below the paths `own` only."""
        before = listing(root, own)
        self.tried[kind] += 1
        fault = ""
        signal.alarm(SECONDS)
        try:
            action()
        except (UnicodeEncodeError, IndexError):  # neither zipfile nor Parquet writes such a name
            pass
        except OSError as error:
            if error.errno not in OF_THE_MACHINE:  # of which a command prints a line
                fault = f"{type(error).__name__}: {str(error)[:150]}"
        except UserError as error:
            if "\n" in str(error) or len(str(error)) > 2000:
                fault = f"a message of {len(str(error))} letters"
        except BaseException as error:
            fault = f"{type(error).__name__}: {str(error)[:150]}"
        finally:
            signal.alarm(0)
        if (after := listing(root, own)) != before:
            fault = f"written outside: {sorted(after.items() - before.items())}"[:200]
        if fault:
            self.faults.append(f"{kind}, {what}: {fault}")
        else:
            self.held[kind] += 1


def listing(root: Path, own: Sequence[Path]) -> dict[str, bytes]:
    """Return path and content of what is in a folder, but not below the paths `own`."""
    return {
        str(path): b"" if path.is_dir() else path.read_bytes()
        for path in root.rglob("*")
        if not any(path == place or place in path.parents or path in place.parents for place in own)
    }


def try_damages(tried: Tried, root: Path, count: int) -> None:
    """Damage one file of a study, and read the study."""
    whole = study(root / "whole").path
    parquet = root / "whole.parquet"
    save_study(whole, parquet)
    packed = Path(shutil.copytree(whole, root / "packed"))
    archive_runs(packed, [path.parent.name for path in packed.glob("*/config.json")][:4])
    run = next(whole.glob("*/config.json")).parent.name
    kinds = {
        "archive": (packed, "ended/00001.zip"),
        "study.json": (whole, "study.json"),
        "records": (whole, f"{run}/records.ndjson"),
        "config": (whole, f"{run}/config.json"),
        "file of records": (root, "whole.parquet"),
    }
    outside = root / "outside"
    outside.mkdir()
    (outside / "bashrc").write_text("mine")
    place = root / "case"
    for number in range(count):
        kind = [*kinds][number % len(kinds)]
        folder, name = kinds[kind]
        shutil.rmtree(place, ignore_errors=True)
        if kind == "file of records":
            place.mkdir()
        else:
            shutil.copytree(folder, place)
        (place / name).write_bytes(damaged((folder / name).read_bytes(), random.Random(number)))
        action = functools.partial(read, place, kind, ranks=number % 50 < 5)
        tried.case(f"damaged {kind}", str(number), action, outside, [])


def read(place: Path, kind: str, *, ranks: bool) -> None:
    """Read a study that is damaged, and restore its runs."""
    if kind == "file of records":
        restore_study(place / "whole.parquet", place / "restored")
        return
    load_study(place)
    if ranks:
        rank(place)
    for archive in archives(place):
        for run in archive.run_names:
            restore_run(place, run)


class StubBucket(s3.Bucket):
    """A bucket with the keys that somebody else has written."""

    def __init__(self, keys: list[str]) -> None:
        self.name, self._keys = "b", keys

    def keys(self, prefix: str) -> Iterator[str]:
        return iter(f"{prefix}{key}" for key in self._keys)

    def get(self, key: str) -> s3.StoredObject:
        return s3.StoredObject(b"{}", "e", 0.0)


def roads(place: Path, name: str) -> dict[str, Callable[[], object]]:
    """Return, for each road by which a name comes in, what follows it."""
    runs = place / "runs/study"

    def archive(member: str) -> Callable[[], object]:
        def action() -> None:
            study(runs)
            (runs / "ended").mkdir()
            warnings.simplefilter("ignore", UserWarning)  # a name twice
            with zipfile.ZipFile(runs / "ended/00001.zip", "w") as file:
                for own in ("R/config.json", "R/records.ndjson", member):
                    file.writestr(own, "{}")
            with contextlib.suppress(UserError):  # R has no config
                load_study(runs)
            restore_run(runs, "R")
            for own in [n.partition("/config.json")[0] for n in archives(runs)[0].members]:
                restore_run(runs, own)

        return action

    def packs() -> None:
        runs.mkdir(parents=True)
        pack = Store(runs / f"{PREFIX}w")
        pack.append(SEGMENT, record_line({"event": "note", "epoch": 1, "reason": "x", "run": name}))
        unpack_all(Store(runs))

    def chosen() -> None:
        from lmzoo.lab.cli.run_names import find_run

        toy = study(runs)
        toy.study_json["chosen"]["full"]["runs"] = [name]
        toy.write()
        find_run(f"{runs}:cut full")

    def parquet(folder: str, file: str) -> Callable[[], object]:
        def action() -> None:
            rows = [("", "study.json", b"{}"), (folder, file, b"{}")]
            pl.DataFrame(rows, ["folder", "file", "content"], orient="row").write_parquet(
                place / "x.parquet"
            )
            restore_study(place / "x.parquet", runs)

        return action

    def module() -> None:
        load({"hash": "0" * 12, "modules": {name: str(place)}}, place)

    def code_hash() -> None:
        load({"hash": name, "modules": {"own": str(place)}}, place)

    def bucket() -> None:
        folder = s3.S3Store(StubBucket([name, f"{name}/config.json"]), "p").local_copy(TABLE_FILES)
        shutil.rmtree(folder)

    def label() -> None:
        own = file_name(name)
        assert below(place, own).parent == place, own

    return {
        "member of an archive": archive(f"R/{name}"),
        "run of an archive": archive(f"{name}/config.json"),
        "key of a bucket": bucket,
        "folder in a file of records": parquet(name, "config.json"),
        "file in a file of records": parquet("run", name),
        "run in the segment of a pack": packs,
        "run in study.json": chosen,
        "module of a config": module,
        "hash of code in a config": code_hash,
        "label of a file": label,
    }


def try_names(tried: Tried, root: Path, count: int) -> None:
    """Follow each name on each road."""
    outside = root / "home"
    outside.mkdir()
    (outside / "bashrc").write_text("mine")
    place = root / "deep/er/place"
    for name in names(count, outside):
        for kind, action in roads(place, name).items():
            place.mkdir(parents=True)
            own = [place / "runs/study", place / "x.parquet"]
            tried.case(kind, ascii(name)[:80], action, root, own)
            shutil.rmtree(root / "deep")
            for path in root.iterdir():
                if path != outside:
                    path.unlink()


def main(words: list[str]) -> int:
    """Try all cases; return 1 if one was not held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="a few cases of each kind")
    parser.add_argument("--damages", type=int, default=DAMAGES)
    parser.add_argument("--names", type=int, default=NAMES)
    given = parser.parse_args(words)
    if given.smoke:
        given.damages, given.names = 25, 10
    tried = Tried()
    before: Any = signal.signal(signal.SIGALRM, _too_long)
    try:
        with tempfile.TemporaryDirectory() as damages, tempfile.TemporaryDirectory() as hostile:
            try_damages(tried, Path(damages), given.damages)
            try_names(tried, Path(hostile), given.names)
    finally:
        signal.signal(signal.SIGALRM, before)
    echo("| what | tried | held |\n|---|---:|---:|")
    for kind, count in tried.tried.items():
        echo(f"| {kind} | {count:,} | {tried.held[kind]:,} |")
    for fault in tried.faults[:40]:
        echo(fault, err=True)
    return 1 if tried.faults else 0


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
