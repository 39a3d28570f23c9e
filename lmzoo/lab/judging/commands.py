"""Judge two commands: paired seeds, looks that may stop early, keep or discard.

Each command is run with the seeds 1, 2, ... in place of `{seed}`. After 3, 6, 12, ... seeds of
both, `statistics.compared` looks; its looks together are wrong with at most 5 %, whenever the run
ends. The folder of results has `runs.jsonl`, one line per run, and `looks.json`: a judge that was
killed goes on from there.
"""

import contextlib
import functools
import hashlib
import itertools
import math
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from lmzoo.base.environment import Environment, differences, present
from lmzoo.base.errors import ProgramError, UserError, described_output, near
from lmzoo.base.printed import check_whole, with_digits
from lmzoo.base.shell import command_environment, named_files, noticed
from lmzoo.lab.judging.texts import (
    SAME,
    check_margin,
    flat_row,
    keys_of,
    loose_object,
    number,
    objects,
    with_newlines,
)
from lmzoo.lab.statistics.compared import (
    NEGLIGIBLE,
    UNDECIDED,
    Compared,
    Look,
    compared,
    looks,
    read_looks,
    spend,
)  # fmt: skip
from lmzoo.lab.statistics.draws import follow_line
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.opened import (
    SEEN,
    Files,
    changes,
    check_environment,
    check_files,
    digest,
    inputs,
    new_log,
    read_log,
    variables,
    with_hook,
)
from lmzoo.lab.store.records import LARGEST, parse_json, record_line

RUNS = "runs.jsonl"
LOOKS = "looks.json"
SEED = "{seed}"
KEEP = "keep"
DISCARD = "discard"
CODES = {KEEP: 0, DISCARD: 1, UNDECIDED: 3}
"""Decision -> exit code; 2 is bad input."""
FIRST = 3
"""Seeds of the first look."""
ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X].*?(?:\x07|\x1b\\|$)|[ -/]*[0-~])", re.DOTALL
)
"""Escape sequences of terminals: colours, titles, links."""
TRACEBACK = re.compile(r"^Traceback \(most .*\n(?:[ \t].*\n)*(.*)", re.MULTILINE)
NAME_IT = r"name --metric KEY of a JSON line, or --pattern 'loss: (\S+)'"

Say = Callable[[str], None]
"""Prints what a reader should know."""


@dataclass(frozen=True)
class Metric:
    """Where a command prints its metric."""

    name: str | None = None
    """A key of JSON lines; the last line that has it counts."""
    pattern: str | None = None
    """A regular expression; the first group of its last match counts."""
    higher_is_better: bool = False

    @property
    def sign(self) -> int:
        """A loss is this times the metric."""
        if self.higher_is_better:
            return -1
        return 1

    def read(self, out: str, err: str, say: Say = lambda _: None) -> float:
        """Return the metric, not finite if the run diverged; a `UserError` if it is no number.

        `say` is told what else than a line of JSON, or which longer word, was read.
        """
        hint = ""
        if self.pattern is not None:
            text = _matched(self.pattern, f"{out}\n{err}", say)
        elif self.name is not None:
            text = _named(self.name, out, say)
        else:
            text = out.strip().rpartition("\n")[2].strip()
            hint = f"; {NAME_IT}"
            if not text:
                raise UserError(f"it printed nothing{hint}")
        try:
            return number(text)
        except ValueError:
            found = f"the metric is {str(text)[:60]!r}, not a number up to {LARGEST:g}"
            raise UserError(found + hint) from None


@dataclass(frozen=True)
class Arm:
    """A command, and where it runs."""

    name: str
    """`base` or `candidate`."""
    command: str
    folder: Path
    metric: Metric
    changed: Files = field(default_factory=dict)
    """What its earlier runs have read or depended on, and that is another one now."""
    log: Path = field(default_factory=new_log)
    """Where Python notes what the last run has read."""

    @functools.cached_property
    def files(self) -> Files:
        """The files of its identity, and their digests before it writes them."""
        names = named_files(self.command, self.folder)
        digests = {name: digest(self.folder / name) for name in names}
        return digests | dict(self.changed)

    @functools.cached_property
    def identity(self) -> str:
        """A hash of the command, the metric, and what it reads and depends on."""
        parts = [self.command, str(self.metric)] + list(self.files.values())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def environment(self) -> dict[str, Any]:
        """Return its Python, packages and variables, the machine and the commits."""
        return command_environment(self.command, self.folder, self.read_files())

    def read_files(self) -> Files:
        """Return the files that the last run has read."""
        return read_log(self.log, self.folder)

    def run(self, seed: int, say: Say = lambda _: None) -> float:
        """Run the command with a seed and return its metric; say that it printed a traceback.

        A `UserError` has the last line of its stderr, or says that it printed no metric, or that
        its files have changed.
        """
        name = f"{self.name}, seed {seed}"
        try:
            # An edit before or during a run would measure other code than its identity says.
            self._check({})
            value = self._run(seed, lambda text: say(f"{name}: {text}"))
            self._check(self.read_files())
        except (ProgramError, UserError) as error:
            raise UserError(f"{name}: {error}") from None
        return value

    def _check(self, read: Files):
        check_files(self.files, read, self.folder)
        check_environment(self.command, self.environment())

    def _run(self, seed: int, say: Say) -> float:
        # The hook notes which files Python reads: an edit of one makes another run.
        command = with_hook(self.command.replace(SEED, str(seed)))
        self.log.unlink(missing_ok=True)
        environment = dict(os.environ) | {"LMZOO_SEED": str(seed)} | variables(self.log)
        # Files, not pipes: a child in the background may hold a pipe for ever.
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                command,
                shell=True,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                env=environment,
            )
            try:
                # Only the process itself ends a run: its children may live on.
                process.wait()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            out = _printed(stdout)
            err = _printed(stderr)
        code = process.returncode
        if code:
            ended = f"exit code {code}"
            # Popen has minus the number of the signal.
            if code < 0:
                ended = f"signal {-code}"
            printed = err.strip()
            if not printed:
                printed = out.strip()
            lines = list(filter(str.strip, printed.splitlines()))
            raise UserError(f"{ended}: {described_output(lines)}")
        # Some programs catch an error and end with exit code 0.
        found = TRACEBACK.search(f"{out}\n{err}")
        if found:
            error = f"printed a traceback ({found[1][:60]}) and ended with exit code 0"
            say(f"warning: {error}; what it printed counts")
        return self.metric.read(out, err, say)


def _printed(file: IO[bytes]) -> str:
    """Return what was printed without codes of terminals; a progress bar is lines."""
    file.seek(0)
    text = file.read().decode(errors="replace")
    return with_newlines(ANSI.sub("", text))


def _matched(pattern: str, printed: str, say: Say) -> str:
    """Return the first group of the last match of the pattern, as it was printed."""
    finds = re.compile(pattern, re.MULTILINE).finditer
    found = list(finds(printed))
    found.extend(finds(with_digits(printed)))  # \\d+ matches no nan
    last = max(found, key=re.Match.start, default=None)
    if last is None or not last[1]:
        raise UserError(f"nothing matches --pattern {pattern!r}")
    start, end = last.span(1)
    check_whole(printed, start, end)
    word = re.split(r"[^\w./-]", printed[: last.start()])[-1]
    # `loss:` also matches in `valid_loss:`, another metric.
    if word and re.match(r"\w", last[0]):
        say(f"--pattern {pattern!r} matches inside of {word + last[0]!r}")
    return printed[start:end]


def _named(name: str, out: str, say: Say) -> Any:
    """Return the value of the key in the last object that has it."""
    rows = list(map(flat_row, objects(out)))
    values = [row[name] for row in rows if name in row]
    key = name.rpartition(".")[2]
    # A key in a last line that is not JSON must not leave an older value in its place.
    is_named = re.compile(rf"""["']{re.escape(key)}["']\s*:""")
    lines = list(filter(is_named.search, out.split("\n")))
    if lines and not list(objects(lines[-1])):
        last = list(is_named.finditer(out))[-1]
        found, kind = loose_object(out, last.start())
        row = flat_row(found)
        if name not in row:
            line = lines[-1].strip()[:60]
            raise UserError(f"a line with the key {key!r} is not JSON: {line!r}")
        values = [row[name]]
        say(f"{name} is read from {kind}")
    if not values:
        raise UserError(f"no JSON line has the key {name!r}{near(name, keys_of(rows))}")
    if values[-1] is None:
        raise UserError(f"{name} is null in the last JSON line that has it")
    return values[-1]


RUN_KEYS = frozenset({"arm", "name", "command", "seed", "value", "seconds", "environment", "files"})


class Results:
    """The runs in a folder: arm and seed -> metric."""

    def __init__(self, folder: Path, say: Say = lambda _: None):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is no folder; choose another --out")
        self.store = Store(folder)
        self.values: dict[tuple[str, int], float] = {}
        """Identity of an arm and seed -> metric; a pending run has none."""
        self._then: dict[str, Environment] = {}
        """Identity of an arm -> the environment of its last run."""
        self.read: dict[str, dict[str, str]] = {}
        """Identity of an arm -> files that its runs have read."""
        damaged = 0
        lines = (self.store.read(RUNS) or b"").split(b"\n")
        for line in filter(None, lines):
            row = parse_json(line)
            try:
                if row.keys() != RUN_KEYS:
                    raise ValueError("a foreign line")
                self.values[row["arm"], row["seed"]] = float(row["value"])
                self._then[row["arm"]] = row["environment"]
                self.read.setdefault(row["arm"], {}).update(row["files"])
            except (AttributeError, TypeError, ValueError):
                if line != lines[-1]:  # a judge that was killed has cut the last line
                    damaged += 1
        if damaged:
            said = "damaged or foreign lines are left out; runs without a result are run again"
            say(f"{folder / RUNS}: {damaged} {said}")

    def add(self, arm: Arm, seed: int, value: float, seconds: float):
        row = {
            "arm": arm.identity,
            "name": arm.name,
            "command": arm.command,
            "seed": seed,
            "value": str(value),
            "seconds": round(seconds, 3),
            "environment": arm.environment(),
            "files": inputs(arm.read_files()),
        }
        # At once, so that a judge that is killed goes on from here.
        self.store.append(RUNS, record_line(row))
        self.values[arm.identity, seed] = value

    def losses(self, arms: tuple[Arm, Arm], seeds: int) -> np.ndarray:
        """Return the losses (2, S): infinity for a diverged run, NaN for a pending one."""
        losses = np.full((2, seeds), np.nan)
        for row, arm in zip(losses, arms, strict=True):
            for seed in range(1, 1 + seeds):
                value = self.values.get((arm.identity, seed))
                if value is None:
                    continue
                # A diverged run is a count, in no mean, whatever it printed.
                row[seed - 1] = math.inf
                if math.isfinite(value):
                    row[seed - 1] = value * arm.metric.sign
        return losses

    def of_now(self, arm: Arm, say: Say) -> Arm:
        """Return the arm with what its runs have read, and depended on, as it is now.

        So base and candidate are measured in one environment.
        """
        read = self.read.get(arm.identity)
        then = self._then.get(arm.identity, {})
        packages = differences(then, present(then), program=True)
        changed = changes(read or {}, arm.folder)
        changed |= {name: now for name, (_, now) in packages.items()}
        if changed:
            say(f"{arm.name} is measured again: {', '.join(changed)} has changed")
            # Under its new identity it may have runs, which have read other files.
            return self.of_now(replace(arm, changed=dict(arm.changed) | changed), say)
        text = noticed(arm.command, arm.files, noted=read != {})
        if text:
            say(f"{arm.name}: {text}")
        return arm

    def plan(self, pair: str, most: int) -> tuple[Look, ...]:
        """Return the looks for at most this number of seeds, after those of an earlier judge."""
        content = self.store.read(LOOKS)
        stored = parse_json(content)
        try:
            made = read_looks(stored.get(pair, ()), 0)
        except (AttributeError, ValueError, TypeError):
            stored = None
            made = ()
        # Each look spends a part of the error, so forgotten looks would make it larger.
        if stored is None and self.values:
            raise UserError(
                f"{self.store}/{LOOKS} is damaged or missing: how often its runs were looked at is "
                "not known; choose another --out"
            )
        schedule = spend(looks(min(FIRST, most), most), made)
        # Before any run, so that a judge that is killed goes on with these looks.
        all_looks = (stored or {}) | {pair: schedule}
        self.store.write(LOOKS, record_line(all_looks).encode())
        return schedule


def judge_commands(
    base: Arm,
    candidate: Arm,
    results: Results,
    *,
    margin: float = 0.0,
    max_seeds: int = 24,
    minutes: float = math.inf,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Run both commands until the decision is clear; return it as a dictionary.

    A `UserError` says that a command failed, or that an argument is out of range.
    """
    SEEN.clear()
    arms = (results.of_now(base, say), results.of_now(candidate, say))
    _check_arguments(arms, margin, max_seeds, minutes)
    pair = f"{arms[0].identity} {arms[1].identity}"
    # The looks of an earlier judge have spent a part of the error.
    schedule = results.plan(pair, max_seeds)
    most = schedule[-1].seeds
    deadline = time.monotonic() + 60 * minutes
    out_of_time = False
    for look in schedule:
        seeds = range(1, 1 + look.seeds)
        for seed, arm in itertools.product(seeds, arms):
            # An earlier look, or an earlier judge, has run it.
            if (arm.identity, seed) in results.values:
                continue
            begun = time.monotonic()
            out_of_time = begun > deadline
            if out_of_time:
                break
            value = arm.run(seed, say)
            results.add(arm, seed, value, time.monotonic() - begun)
            say(f"{arm.name}, seed {seed}: {value:g}")
        decision, _ = decide(results.losses(arms, most), schedule, margin)
        if out_of_time or decision != UNDECIDED:
            break
    # If the time is over, the runs since the last look count, too.
    losses = results.losses(arms, most)
    _warn(arms, losses, say)
    decision, found = decide(losses, schedule, margin)
    sign = base.metric.sign
    # Minus makes the low end the high one.
    low, high = sorted((sign * found.low[1], sign * found.high[1]))
    needed = _plain(found.seeds_needed[1])
    if needed is not None:
        needed = int(needed)
    known = ~np.isnan(losses)
    return {
        "decision": decision,
        "verdict": str(found.verdict[1]) or UNDECIDED,
        "confirmed": bool(found.confirmed[1]),
        "difference": _plain(sign * found.mean[1]),
        "low": _plain(low),
        "high": _plain(high),
        "p": _plain(found.p[1]),
        "margin": margin,
        "seeds": known.sum(1).tolist(),
        "diverged": np.isposinf(losses).sum(1).tolist(),
        "seeds_needed": needed,
        "out_of_time": out_of_time,
    }


def _warn(arms: tuple[Arm, Arm], losses: np.ndarray, say: Say):
    """Say which losses are no noise of seeds."""
    fixed = []
    for arm, own in zip(arms, losses, strict=True):
        known = own[np.isfinite(own)]
        # A script that fixes its seed does not read ours.
        if len(known) > 1 and np.ptp(known) == 0:
            fixed.append(arm.name)
    if fixed:
        say(f"warning: {' and '.join(fixed)}: {SAME}")
    alike = follow_line(losses)
    if alike:
        say(f"warning: {alike}")


def _plain(value: float) -> float | None:
    """Return a number as JSON has it: None for NaN, 0.0 for -0.0."""
    if math.isnan(value):
        return None
    return float(value) + 0.0


def _check_arguments(arms: tuple[Arm, Arm], margin: float, max_seeds: int, minutes: float):
    if max_seeds < 2:
        raise UserError(f"--max-seeds {max_seeds} shows nothing; give 2 or more")
    check_margin(margin)
    if not minutes >= 0:
        raise UserError(f"a budget of {minutes:g} minutes; give 0 or more")
    for arm in arms:
        if SEED not in arm.command:
            raise UserError(f"{arm.name} has no {SEED}, the place of its seed: {arm.command!r}")
    if arms[0].identity == arms[1].identity:
        raise UserError("base and candidate are the same command; change one of them")


def decide(x: np.ndarray, schedule: Sequence[Look], margin: float = 0.0) -> tuple[str, Compared]:
    """Return the decision about a candidate, and the comparison.

    The losses x (2, S) are those of the base and of the candidate, NaN for pending runs. A sign
    decides when fresh seeds have repeated it.
    """
    # The column after the last one ends a row without a pending run.
    last = np.ones((2, 1), bool)
    pending = np.concatenate([np.isnan(x), last], 1)
    found = compared(x, 0, looks=schedule, margin=margin, ended=pending.argmax(1))
    sign = 0
    if found.confirmed[1]:
        # An unconfirmed sign may be the luck of the seeds at which it was seen.
        sign = found.sign[1]
    if str(found.verdict[1]) == NEGLIGIBLE or sign > 0:
        return DISCARD, found
    if sign < 0:
        return KEEP, found
    return UNDECIDED, found
