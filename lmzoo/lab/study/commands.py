r"""A command of the user: any program that prints its metrics, or writes them into a file.

    Command("python train.py --lr {lr} --seed {seed} --epochs {epochs}")

`{seed}`, `{epochs}`, `{folder}` and the point's settings are replaced. The program reports

    JSON lines   {"epoch": 3, "valid": 1.27, "test": 1.31} on its output: the default
    pattern      lines of its output that a regular expression finds: `epoch (?P<epoch>\d+) val
                 (?P<valid>\S+)`; a single group without a name is the study's metric
    csv          rows of this file, in {folder}; rows without the metric are left out
    tensorboard  scalars of the event files below this folder, in {folder}; the step is the epoch

A report counts if it has the study's metric. Of reports without an epoch, the last one counts.
Most programs count steps: with `every=500`, the reports of steps 500, 1000, ... are those of epochs
1, 2, ...

The program runs in the folder in which the study was started. The environment variable `LMZOO_SEED`
has the seed. `LMZOO_FOLDER`, and `{folder}`, name a folder of the run that outlives the process: a
program that saves its state there and loads it at its start goes on after an interruption. A
program that keeps no state begins again. `output.txt` in the run's folder has all that it printed.
"""

import contextlib
import csv
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from glob import glob
from pathlib import Path
from typing import IO, Any

from lmzoo.base.arguments import constructed, text, texts, whole
from lmzoo.base.errors import ProgramError, UserError, described_output, near
from lmzoo.base.printed import check_whole, json_value, with_digits
from lmzoo.base.shell import command_environment, named_files
from lmzoo.lab.store.opened import (
    Files,
    check_environment,
    digest,
    read_log,
    variables,
    with_hook,
)
from lmzoo.lab.study.output import OUTPUT
from lmzoo.lab.study.programs import ProgramRun, Report

FOLDER = "LMZOO_FOLDER"
"""Environment variable with the folder of the run's state."""
SEED = "LMZOO_SEED"
"""Environment variable with the seed."""
STATE = "state"
OPENED = "opened.txt"
SHORTEST = 0.02
"""Seconds between two looks at what a program has reported; they grow while there is nothing."""
LONGEST = 0.5
GIVEN = ("seed", "epochs", "folder")
"""Names that a command may have besides the settings."""
NAME = re.compile(r"(?<!\$)\{(\w+)\}")
"""`{lr}`; not the `${HOME}` of a shell."""
Row = dict[str, Any]
"""A report as a program writes it: numbers, or their texts, by name."""
GUARD = "exec 3<&0 </dev/null\n(cat <&3 >/dev/null 2>&1; kill -9 0) &\nexec 3<&-\n"
"""Ends the program's process group when the worker dies, which holds the other end of the pipe."""


@constructed
@dataclass(frozen=True)
class Command:
    """A shell command that trains, and where it reports its metrics."""

    text: str
    pattern: str = ""
    csv: str = ""
    """A file; as `tensorboard`, it contains `{folder}`, so that runs do not share it."""
    tensorboard: str = ""
    first_epoch: int = 1
    """The number of the first epoch in the program's reports."""
    every: int = 1
    """Steps that are one epoch, for a program that reports steps; other steps are left out."""
    files: tuple[str, ...] = ()
    """Further files that decide its results, as patterns: `conf/*.yaml`."""

    def __post_init__(self):
        for name in ("text", "pattern", "csv", "tensorboard"):
            text(name, getattr(self, name))
        texts("files", self.files)
        for name in ("first_epoch", "every"):
            # Frozen; a numpy integer becomes a Python one.
            object.__setattr__(self, name, whole(name, getattr(self, name)))

    def check(self, settings: Mapping[str, Any]):
        """Raise a `UserError` unless the command uses the seed, all settings, and no more."""
        readers = [name for name in (self.pattern, self.csv, self.tensorboard) if name]
        if len(readers) > 1:
            raise UserError(f"command {self.text!r}: give one of pattern, csv and tensorboard")
        place = self.csv + self.tensorboard
        if place and "{folder}" not in place:
            name = Path(place).name
            raise UserError(
                f"command {self.text!r}: runs would share {place!r}; write {{folder}}/{name}, "
                "and give the program {folder}"
            )
        # A setting that the command does not take would be searched in vain.
        names = set(NAME.findall(self.text))
        # Without a seed all runs of a point would be equal.
        if "seed" not in names and SEED not in self.text:
            raise UserError(f"command {self.text!r} has no {{seed}}; write it where the seed goes")
        unknown = names - {*GIVEN, *settings}
        if unknown:
            name = min(unknown)
            hint = near(name, settings)
            raise UserError(f"command {self.text!r}: no setting {name!r}{hint}; add it to `fields`")
        unused = settings.keys() - names
        if unused:
            name = min(unused)
            raise UserError(f"command {self.text!r} has no {{{name}}}, a setting of the point")
        if self.every < 1:
            raise UserError(f"every={self.every} steps are no epoch; give 1 or more")
        try:
            # Here, and not in a worker an hour later.
            re.compile(self.pattern)
        except re.error as error:
            raise UserError(f"pattern {self.pattern!r}: {error}") from None

    def numbered(self, row: Row) -> Row | None:
        """Return a report whose epochs count from 1; None if its step is inside of an epoch."""
        name = "epoch"
        if self.every > 1 and "step" in row:
            name = "step"
        numbered = {key: value for key, value in row.items() if key != "epoch"}
        if row.get(name) in (None, ""):
            return numbered
        try:
            epoch, rest = divmod(float(row[name]), self.every)
            if rest:
                return None
            numbered["epoch"] = int(epoch) + 1 - self.first_epoch
        except (TypeError, ValueError):
            raise RuntimeError(f"{name} is {str(row[name])[:60]!r}, not a number") from None
        return numbered

    @property
    def takes_epochs(self) -> bool:
        """Whether the number of epochs decides what it does."""
        return "epochs" in NAME.findall(self.text)

    def facts(self) -> dict[str, Any]:
        """Return what decides the results: the text, the reading, the files that it names."""
        here = Path.cwd()
        names = named_files(self.text, here)
        for pattern in self.files:
            found = sorted(glob(pattern, recursive=True))  # noqa: PTH207
            if not found:
                raise UserError(f"command {self.text!r}: files={pattern!r} names no file")
            names += found
        files = {name: digest(here / name) for name in names}
        # Defaults are left out, so that a further option changes no identity.
        read = asdict(self)
        del read["text"]
        for name in list(read):
            if read[name] == getattr(Command, name):
                del read[name]
        return {"name": "command", "command": self.text, "read": read, "files": files}


class CommandRun(ProgramRun):
    """A run of a command. Its state is a folder, so it has no checkpoint."""

    _process: subprocess.Popen[bytes] | None = None

    def start(self, budget: int) -> Iterator[Report]:
        """Start the command, and yield what it reports; its error is a `ProgramError`."""
        state = self._folder / STATE
        # The program may write there before it reports.
        state.mkdir(parents=True, exist_ok=True)
        model = self.config["model"]
        values = {
            **self.config["recipe"],
            "seed": self.config["seed"],
            "epochs": budget,
            "folder": str(state),
        }
        read = Command(model["command"], **model["read"])
        output = self._folder / OUTPUT
        # The files of an earlier attempt are not those of this one.
        self._log.unlink(missing_ok=True)
        with output.open("ab") as file:
            begin = file.tell()
            look = _reader(read, output, begin, self.where, values, model["metric"])
            look()  # what an earlier process has left does not count
            self._process = process = self._spawn(_filled(read.text, values), values, file)
        pause = SHORTEST
        while True:
            ended = process.poll() is not None  # before the look, so that nothing is missed
            if process.returncode == 0:
                with output.open("ab") as file:  # a last line without an end is whole
                    file.write(b"\n")
            rows = [read.numbered(row) for row in look()]
            pause = min(LONGEST, 1.5 * pause)
            for row in rows:
                if row is not None:
                    pause = SHORTEST
                    yield row, None
            if ended:
                break
            time.sleep(pause)
        if process.returncode:
            with output.open("rb") as file:
                file.seek(begin)
                printed = file.read().decode(errors="replace").strip().splitlines()
            raise ProgramError(f"exit code {process.returncode}: {described_output(printed)}")

    def _spawn(
        self, text: str, values: Mapping[str, Any], output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start the process, in a group of its own, so that all that it starts ends with it."""
        where = None
        if self.where.is_dir():
            where = self.where
        environment = {
            **os.environ,
            **variables(self._log),
            FOLDER: values["folder"],
            SEED: str(values["seed"]),
            "PYTHONUNBUFFERED": "1",
        }
        return subprocess.Popen(
            ["/bin/sh", "-c", GUARD + with_hook(text)],
            cwd=where,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def check(self, read: Files):
        super().check(read)
        check_environment(self._command, self.environment())

    def environment(self) -> dict[str, Any]:
        return command_environment(self._command, self.where, self._read)

    @property
    def _command(self) -> str:
        return self.config["model"]["command"]

    def read_files(self) -> Files:
        return read_log(self._log, self.where)

    @property
    def has_state(self) -> bool:
        return any((self._folder / STATE).glob("*"))

    def forget_state(self):
        shutil.rmtree(self._folder / STATE)

    def stop(self):
        """End the program and all processes that it started."""
        self._stream = None
        if self._process is not None:
            # It may have ended by itself.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stdin:
                self._process.stdin.close()
            self._process = None

    @property
    def _folder(self) -> Path:
        return self.folder.path.absolute()

    @property
    def _log(self) -> Path:
        return self._folder / OPENED


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """Return a command with its values, each a word of the shell; other names stay."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            return found[0]
        return shlex.quote(str(values[found[1]]))

    return NAME.sub(value, text)


def _reader(
    command: Command,
    output: Path,
    begin: int,
    where: Path,
    values: Mapping[str, Any],
    metric: str,
) -> Callable[[], list[Row]]:
    """Return a function that returns the reports since its last call."""
    pattern = command.csv + command.tensorboard
    place = where / NAME.sub(lambda found: str(values[found[1]]), pattern)
    if command.csv:
        return _Rows(place)
    if command.tensorboard:
        return _Events(place)
    return _Lines(output, begin, command.pattern, metric)


class _Lines:
    """Whole lines that were added to a file: JSON objects, or matches of a pattern."""

    def __init__(self, file: Path, begin: int, pattern: str, metric: str):
        self._file = file
        self._read = begin
        """Bytes that were read."""
        self._pattern = None
        if pattern:
            self._pattern = re.compile(pattern)
        self._metric = metric

    def __call__(self) -> list[Row]:
        with self._file.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        # A bar of progress writes several states into a line.
        lines = re.split(r"[\r\n]+", whole.decode(errors="replace"))
        rows = [self._row(line) for line in lines]
        return [row for row in rows if row]

    def _row(self, line: str) -> Row | None:
        if self._pattern is None:
            return self._json_row(line)
        # A pattern of digits should find `nan`, too: the run diverges.
        found = self._pattern.search(line) or self._pattern.search(with_digits(line))
        if found is None:
            return None
        groups = [name for name, text in found.groupdict().items() if text is not None]
        named = {name: line[slice(*found.span(name))] for name in groups}
        group: str | int = 0
        if found.re.groups:
            group = 1
        if self._metric in named:
            group = self._metric
        start, end = found.span(group)
        try:
            if group in named or not named:
                check_whole(line, start, end)
        except UserError as error:
            raise RuntimeError(str(error)) from None
        return named or {"": line[start:end]}

    def _json_row(self, line: str) -> Row | None:
        """Return the object of a line; a line that has the metric and is none is an error."""
        # Most lines of a program are no JSON.
        with contextlib.suppress(ValueError):
            row = json_value(line)
            if isinstance(row, dict):
                return row
            return None
        # Silently skipped, it would look as if the program reported nothing.
        if re.fullmatch(rf'\s*{{.*"{re.escape(self._metric)}"\s*:.*}}\s*', line):
            raise RuntimeError(f"a line is not JSON: {line.strip()[:60]!r}")
        return None


class _Rows:
    """Whole rows that were added to a CSV file; a file that shrank is read again."""

    def __init__(self, file: Path):
        self._file = file
        self._seen = 0

    def __call__(self) -> list[Row]:
        try:
            # A file that a spreadsheet wrote begins with a mark.
            text = self._file.read_text("utf-8-sig", "replace")  # half of a letter, perhaps
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1]
        rows = list(csv.DictReader(io.StringIO(whole)))
        new = rows
        if len(rows) >= self._seen:
            new = rows[self._seen :]
        self._seen = len(rows)
        # A row that is longer or shorter than the heading has None as a name or as a value.
        return [{name: value for name, value in row.items() if name and value} for row in new]


class _Events:
    """Steps that were added to TensorBoard's event files; the last one may be incomplete."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._seen = dict[int, Row]()

    def __call__(self) -> list[Row]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        steps: dict[int, Row] = {}
        # A run that continued has a further file in its folder.
        folders = {file.parent for file in self._folder.glob("**/*tfevents*")}
        for folder in sorted(folders):
            events = EventAccumulator(str(folder), {"scalars": 0})
            events.Reload()
            for tag in events.Tags()["scalars"]:
                for event in events.Scalars(tag):
                    steps.setdefault(event.step, {"epoch": event.step})[tag] = event.value
        # A step may get further scalars later.
        new = [row for step, row in sorted(steps.items()) if row != self._seen.get(step)]
        self._seen = steps
        return new
