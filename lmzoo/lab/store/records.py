"""The files of a study: the config and the events of its runs, and where a study is.

`docs/how/run_folder.md` lists all files of a study. The identity of a run is the hash of everything
that decides its result, so a finished run is never trained again. Every event has `event` and
`epoch`:

    epoch   train_token, valid_token, valid_sentence (nats per token), seconds, tokens_per_second,
            host: the machine that trained this epoch;
            valid_accuracy, valid_sequence_accuracy: in a task, which scores some tokens only
    test    token, sentence, tokens, sequences, best_epoch: the test split, scored once per budget;
            characters, bytes, words: the size of its scored text;
            accuracy, sequence_accuracy: in a task; report: further numbers of some models
    end     status: finished | pruned | diverged | failed; `reason`; nodes: where it failed;
            time: when it was written, UTC; environment: what differs from that of the config
    files   files: what a program has read up to this epoch, path -> digest
    note    `reason`: a fact for the reader, for example that a checkpoint was damaged

Numbers are finite or null, so every line is valid JSON. Its last field, `crc`, is the CRC-32 of the
text before it; so have `study.json` and `config.json`. Files of versions before have none. What has
another one, or lacks a field, is damaged. A study is named by its folder, by a file of records, or
by its name in the folder of the runs.
"""

import hashlib
import json
import math
import traceback
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pydantic_core import from_json

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.store.address import S3_SCHEME, open_store
from lmzoo.lab.store.local import Store, is_owned
from lmzoo.lab.store.whole import STATUSES as STATUSES
from lmzoo.lab.store.whole import is_config as is_config
from lmzoo.lab.store.whole import is_record
from lmzoo.lab.store.whole import is_setting as is_setting
from lmzoo.lab.store.whole import is_study as is_study

Record = dict[str, Any]

SCHEMA = 5
"""Version of the files. Raise it when a reader of the old files would fail or be wrong, and when an
older lmzoo would fail on the new files, be wrong or miss runs: its check of this number says so.
In 5, `asha` is asynchronous; before, it was the name of halving."""
READABLE = (2, 4, SCHEMA)
"""Versions that this lmzoo reads. 2 has archives without an index, or none; 3 was never written."""
NUMERICS = 2
"""Version of the numbers: every run's identity contains it.

Raise it when the same config gives other losses: another order of batches, another initial weight,
another draw of noise, a corrected equation. Leave it when losses differ by rounding only. A sweep
refuses a store of another version, because its old and new runs would be compared with each other.
"""
CONFIG = "config.json"
RECORDS = "records.ndjson"
STUDY = "study.json"
SETTINGS = "settings.ndjson"
ABLATIONS = "ablations.ndjson"
"""Losses of trained models without a part (`lmzoo/ablation.py`), in the folder of their runs."""
NONCE = ".sweep"
"""Written by each driver: a worker that reads it sees the same store."""
CHECKSUM = "crc"
"""Last field of a JSON object in a file."""
DAMAGED = "records-damaged.ndjson"
"""Records of a run that was trained again because one was damaged."""
CHECKPOINT = "checkpoint.pt"
PREVIOUS = "checkpoint-previous.pt"
TRACEBACK = "traceback.txt"
WORKER_LOCK = ".worker-{}"
LARGEST = 1e100
"""The square of a larger metric can be infinite."""
IDENTITY_FIELDS = (
    "numerics",
    "model",
    "recipe",
    "corpus",
    "fingerprint",
    "vocab",
    "length",
    "seed",
)
"""Keys of the config that decide the result of a run."""
DRIVER_LOCK = ".driver"
"""The lock of a sweep's process in the folder of its study."""
BOARD = "tensorboard"
"""Folder of the curves in the folder of a study."""
TRACKING = "tracking"
TUNE = "tune"
"""Folders of the files of trackers such as W&B and of Ray Tune in the folder of a study."""
PROGRAM = "program"
"""Key of a config whose run is trained by a function or a command of the user; says which."""
ENVIRONMENT = "environment"
"""Key of a config, and of an end: `lmzoo/base/environment.py`. That of an end has what differs."""
FILES = "files"
"""Key of a config: files that an earlier run has read, and that had other content; and an event."""
USER_CODE = "user_code"
"""Key of a config with parts from outside the package, and the folder of their files."""
OTHERS = (USER_CODE, BOARD, TRACKING, TUNE)
"""Folders in the folder of a study that are no runs."""


def run_identity(run: Fields) -> str:
    """Return the identity of a run, 12 digits: a hash of `IDENTITY_FIELDS` and the user's code.

    The path of a text does not count: the fingerprint has its content.
    """
    fields = {key: run[key] for key in IDENTITY_FIELDS}
    if isinstance(run["corpus"], Mapping):
        fields["corpus"] = dict(run["corpus"])
        fields["corpus"].pop("path", None)
    # Only where there are some: the names of all folders of earlier stores are this hash.
    if FILES in run:
        fields[FILES] = run[FILES]
    if USER_CODE in run:
        fields[USER_CODE] = run[USER_CODE]["hash"]
    # Sorted, the order of the keys of a config makes no other run.
    text = json.dumps(fields, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def with_seeds(config: Fields, seeds: Sequence[int]) -> Iterator[FieldsDict]:
    """Yield the config of each run that differs in the seed only."""
    for seed in seeds:
        run = {**config, "seed": seed}
        yield run | {"run": run_identity(run)}


def json_bytes(value: Any) -> bytes:
    """Return the value as the content of a JSON file; an object gets its checksum."""
    text = json.dumps(value, indent=1, allow_nan=False)  # no mutation
    if isinstance(value, dict):
        text = sealed(text)
    return f"{text}\n".encode()


def sealed(text: str) -> str:
    """Return the JSON text of an object with its checksum."""
    head = text[:-1].rstrip()
    comma = ", "
    if head == "{":  # an empty object
        comma = ""
    checksum = zlib.crc32(head.encode())
    return f'{head}{comma}"{CHECKSUM}": "{checksum:08x}"}}'


def _unsealed(value: Any, text: bytes) -> Any:
    """Return a parsed value without its checksum; None if that is wrong."""
    # Files of earlier versions have no checksum.
    if not isinstance(value, dict) or CHECKSUM not in value:
        return value
    # Of the text before its own field.
    head, _, _ = text.rpartition(f'"{CHECKSUM}"'.encode())
    checksum = zlib.crc32(head.rstrip(b", "))
    if value.pop(CHECKSUM) != f"{checksum:08x}":
        return None
    return value


def is_sealed(line: bytes) -> bool:
    """Return whether a line is empty or has its checksum."""
    if not line:
        return True
    head, mark, checksum = line.rpartition(f', "{CHECKSUM}": "'.encode())
    if not mark:
        return False
    return checksum == b'%08x"}' % zlib.crc32(head)


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; see `parse_json`."""
    return parse_json(Store(path.parent).read(path.name))


def parse_json(data: bytes | None) -> Any:
    """Return the value of JSON text without its checksum; None if it is missing or damaged."""
    if data is None:
        return None
    try:
        return _unsealed(_loads(data), data)
    # Deep nesting of a damaged or hostile file ends in a RecursionError.
    except (ValueError, RecursionError):
        return None


def _loads(data: bytes) -> Any:
    """Return the value of JSON text; an error of `json` if it is damaged."""
    try:
        return from_json(data)  # in a third of the time of `json`
    except ValueError:
        # Python knows more: a byte order mark, half of a surrogate pair.
        return json.loads(data)


class RunFolder:
    """The folder of one run."""

    def __init__(self, address: Store | Path | str):
        self.store = open_store(address)
        self.path = self.store.path

    def create(self, config: Fields, *, new: bool = False):
        """Write the config, unless the folder has a readable one.

        `new`: the store has no such folder, so nothing is read; a `UserError` if that is wrong.
        """
        if new:
            try:
                self.store.create(CONFIG, json_bytes(dict(config)))
            except FileExistsError:
                raise UserError(
                    f"{self.store} was created by another process; run the same command again"
                ) from None
        elif self.config is None:  # a folder keeps the config with which it began
            self.store.write(CONFIG, json_bytes(dict(config)))

    def append(self, *records: Fields):
        """Append events together and flush them to disk; non-finite numbers become null."""
        lines = []
        for record in records:
            own = {**record, "run": self.path.name}
            if record["event"] == "end":
                own = {"time": now()} | own
            lines.append(record_line(own))
        self.store.append(RECORDS, "\n".join(lines))

    def start_over(self, config: Fields | None = None):
        """Empty the records, which are damaged or old, and delete the checkpoints."""
        if config is not None:
            self.store.write(CONFIG, json_bytes(dict(config)))
        # The old lines are kept, so that a ranking knows a copy of them as replaced.
        self.store.write(RECORDS, b"", backup=DAMAGED)
        self.drop_checkpoints()

    def records(self) -> list[Record]:
        """Return all events; see `parse_records`."""
        return parse_records(self.store.read(RECORDS) or b"")

    def drop_checkpoints(self):
        """Delete the checkpoints of a run that will not be continued."""
        self.store.delete(CHECKPOINT)
        self.store.delete(PREVIOUS)

    @property
    def config(self) -> FieldsDict | None:
        """The config, or None if it is missing or damaged."""
        config = parse_json(self.store.read(CONFIG))
        if isinstance(config, dict):
            return config
        return None

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT


def write_traceback(store: Store, error: Exception):
    """Write the traceback of an error into the folder of a run."""
    text = "".join(traceback.format_exception(error))
    # An odd name of a file in it may be no UTF-8.
    store.write(TRACEBACK, text.encode(errors="backslashreplace"))


def now() -> str:
    """Return the time in UTC, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_line(record: Fields) -> str:
    """Return an event, or another object, as a line; non-finite numbers become null."""
    values = replace_non_finite(dict(record))
    return sealed(json.dumps(values, allow_nan=False))


def parse_records(data: bytes) -> list[Record]:
    """Return the events, the last one of each (event, epoch); damaged lines are ignored."""
    return last_records(parse_lines(data, ""))


def event_key(record: Fields) -> tuple[str, int]:
    """Return (event, epoch), of which a run has one record."""
    return record["event"], record["epoch"]


def last_records(events: Iterable[Record | None]) -> list[Record]:
    """Return the last one of each (event, epoch) of the lines that are not damaged."""
    last = {event_key(record): record for record in events if record is not None}
    return list(last.values())


def has_damaged_line(data: bytes, events: Sequence[Record | None]) -> bool:
    """Return whether a parsed line is damaged; the last one may be incomplete after a death."""
    if not data.endswith(b"\n"):
        events = events[:-1]
    return None in events


def parse_lines(data: bytes, run: str | None = None) -> list[Record | None]:
    """Return the event of each line that is not empty; None if it is damaged, or of another run.

    Lines of old files do not name their run. `run`: None keeps the names, "" accepts any.
    """
    lines = [line for line in data.split(b"\n") if line]
    try:
        parsed = from_json(b"[" + b",".join(lines) + b"]")  # one call takes half of the time
    except ValueError:
        parsed = []
    values = map(_unsealed, parsed, lines)
    if len(parsed) != len(lines):  # one is damaged: each is parsed alone
        values = map(parse_json, lines)
    events = []
    for value in values:
        event = None
        if is_record(value):
            event = value
            if run is not None and event.pop("run", run) != run and run:
                event = None
        events.append(event)
    return events


def epoch_records(records: list[Record]) -> list[Record]:
    """Return the epoch events in order of their epochs."""
    epochs = [record for record in records if record["event"] == "epoch"]
    return sorted(epochs, key=event_key)


def last_epoch(records: list[Record]) -> int:
    """Return the last epoch that has a record; 0 if there is none."""
    return max((record["epoch"] for record in epoch_records(records)), default=0)


def find_end(records: list[Record], budget: int) -> Record | None:
    """Return the end event of a run for a budget in epochs, or None if training is pending.

    Epochs beyond the budget do not count: a run that was pruned or diverged there is finished for
    this budget. A failed run is pending, because the cause may be gone.
    """
    ends = [record for record in records if record["event"] == "end"]
    for end in sorted(ends, key=event_key, reverse=True):
        # Its cause may be gone, so the run is trained again.
        if end["status"] == "failed":
            continue
        if end["epoch"] > budget:
            return end | {"status": "finished"}
        # A run is never pruned at the end of its budget; that was a rung of a larger budget.
        if end["epoch"] == budget and end["status"] == "pruned":
            return end | {"status": "finished"}
        if end["epoch"] == budget or end["status"] != "finished":
            return end
    return None


def records_pending(records: list[Record], budget: int, *, test: bool) -> bool:
    """Return whether training, or the test if `test`, is pending for a budget in epochs.

    A `UserError` says that the test is pending, but training has continued beyond the budget.
    """
    end = find_end(records, budget)
    is_tested = ("test", budget) in map(event_key, records)
    if not test or is_tested or (end is not None and end["status"] != "finished"):
        return end is None
    done = last_epoch(records)
    if done > budget:
        raise UserError(
            f"a run was trained for {done} epochs and not tested at {budget}, whose weights are "
            f"gone; ask for {done} epochs or more, or choose another store"
        )
    return True


def replace_non_finite(value: Any) -> Any:
    """Replace NaN and infinities by None, also inside lists and dictionaries."""
    if isinstance(value, list):
        return [replace_non_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


RUNS = Path("runs")


class Named(Protocol):
    """A `Study`, as this room knows it."""

    @property
    def name(self) -> str: ...


def find_study(study: str | Path | Named, runs: Path = RUNS) -> Path:
    """Return the folder of a study: a path, a file of records, a name in `runs`, or a `Study`."""
    text = str(study)
    if not isinstance(study, str | Path):
        text = str(getattr(study, "name", study))
    path = Path(text)
    if path.exists() or path.suffix == ".parquet" or len(path.parts) > 1 or S3_SCHEME.match(text):
        return path
    found = []
    for folder in list_studies(runs):
        # A whole name counts before the beginning of another one.
        if folder.name == text:
            return folder
        if folder.name.startswith(text):
            found.append(folder)
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{text!r} names {len(found)} studies: {listed(found)}; give one of them")
    raise UserError(f"no study {text!r}; {studies_hint(runs)}")


def list_studies(runs: Path) -> list[Path]:
    """Return the folders of the studies in the folder of the runs."""
    return sorted(path.parent for path in runs.glob(f"*/{STUDY}"))


def is_running(study: Path) -> bool:
    """Return whether a sweep of a study runs; a killed one leaves its lock."""
    return is_owned(study / DRIVER_LOCK)


def studies_hint(runs: Path) -> str:
    """Return which studies are in the folder of the runs."""
    studies = list_studies(runs)
    if not studies:
        return f"{runs} has no study"
    return f"studies in {runs}: {listed(studies)}"


MOST_LISTED = 8
"""Paths that a line names."""


def listed(paths: Iterable[Path | str]) -> str:
    """Return paths or names in a line, and how many more there are."""
    names = [str(path) for path in paths]
    text = ", ".join(names[:MOST_LISTED])
    more = len(names) - MOST_LISTED
    if more > 0:
        text += f" and {more} more"
    return text
