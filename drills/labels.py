"""What happens to numbers when something that made them changes; prints the table of the docs.

    python -m drills.labels            all cells, about ten minutes of one core
    python -m drills.labels function   one column: row, function, command, plugin or judge
    python -m drills.labels row --changes config    one cell of each moment, in seconds

A cell is one change, such as another version of a package, at one moment of a small study. Each
command of the study runs in a forked process, without Ray. The numbers of the ranking are then
compared with those of a new store, which has seen nothing but the present state:

    N runs again     the numbers are those of now, N runs of before were trained again
    fails            the run that was being trained fails, with the name of what has changed
    mixed, said      the numbers are mixed or old, and a line names what has changed
    same             nothing of before was trained again, and the numbers are those of now
    SILENT           the numbers are mixed or old, and nothing says so

The exit code is 1 if a cell is SILENT or a command broke.
"""

import argparse
import contextlib
import io
import json
import logging
import math
import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from lmzoo import Point, Study
from lmzoo.base import environment as environments
from lmzoo.base.errors import UserError
from lmzoo.base.own_parts import import_source
from lmzoo.data.corpus import corpus_config, open_corpus
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.judging.commands import Arm, Metric, Results, judge_commands
from lmzoo.lab.store.opened import noted
from lmzoo.lab.study.commands import Command
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.programs import ProgramRun
from lmzoo.train.run import Run
from lmzoo.trainables.resolve import store_folder
from tests.lab.sweep import local_fleet

WHAT = (
    *("script", "config", "helper", "package", "data", "checkpoint", "variable"),
    *("torch", "cpu", "commit"),
)
WHO = ("row", "function", "command", "plugin", "judge")
WHEN = ("before", "during", "after", "taken back")
NOTHING: frozenset[str] = frozenset()
CHANGE = 0.7
"""Not a difference of two epochs: a run of both states has the loss of neither."""
UNUSED = {"row": {"script", "helper", "package", "checkpoint", "variable"}}
"""What a program of this kind does not have."""
SHIFT = """
import json, os
from pathlib import Path
import helper, tinypkg
OWN = {own}
def shift():
    config = json.loads(Path("config.json").read_text())["shift"]
    files = sum(float(Path(name).read_text()) for name in ("data.csv", "base.ckpt"))
    return OWN + config + helper.SHIFT + tinypkg.SHIFT + files + float(os.environ["LEVEL"])
"""
FUNCTION = (
    SHIFT
    + """
def train(settings, seed):
    for epoch in (1, 2):
        loss = 9 + shift() + seed / 1000 + 1 / epoch
        yield {{"epoch": epoch, "valid": loss, "test": loss}}
"""
)
SCRIPT = (
    SHIFT
    + """
import sys, time
for epoch in (1, 2):
    loss = 9 + shift() + int(sys.argv[1]) / 1000 + 1 / epoch
    print(json.dumps({{"epoch": epoch, "valid": loss, "test": loss}}), flush=True)
    time.sleep(0.2)
"""
)
PLUGIN = (
    SHIFT
    + '''
import torch
SHIFT = shift()  # when it is imported; what a step opens is not noticed
from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, Cell, Weights
@CELLS("own_cell")
class OwnCell(Cell):
    """A recurrence without a gate."""
    @config
    class Config:
        """Nothing."""
    def __init__(self, config, width, length):
        super().__init__(config, width, length)
        self.w = Weights({{"w_x": (width, width)}}, cut=set(), fan_in=width)
    def project(self, x):
        return x @ self.w.w_x
    def step(self, projected, state):
        h = torch.tanh(projected + state[0]) * (1 + SHIFT)
        return h, (h,)
'''
)
SENTENCES = "a man rides a horse\na dog runs\ntwo men talk\nthe dog sleeps\nthe man sleeps\n"


def write(folder: Path, state: frozenset[str]) -> None:
    """Write all files as they are in a state, which names what has changed."""
    value = {what: CHANGE * (what in state) for what in WHAT}
    for name, text in {"own_function": FUNCTION, "base": SCRIPT, "own_plugin": PLUGIN}.items():
        (folder / f"{name}.py").write_text(text.format(own=value["script"]))
    (folder / "candidate.py").write_text(SCRIPT.format(own=value["script"]))
    (folder / "base.py").write_text(SCRIPT.format(own=0.0))
    (folder / "config.json").write_text(json.dumps({"shift": value["config"]}))
    (folder / "helper.py").write_text(f"SHIFT = {value['helper']}\n")
    (folder / "data.csv").write_text(f"{value['data']}\n")
    (folder / "base.ckpt").write_text(f"{value['checkpoint']}\n")
    words = SENTENCES.replace("horse", "dog") if "data" in state else SENTENCES
    (folder / "text.txt").write_text(words * 8)
    site = folder / "lib/site-packages"
    shutil.rmtree(site, ignore_errors=True)
    version = "2.0" if "package" in state else "1.0"
    (site / "tinypkg").mkdir(parents=True)
    (site / "tinypkg/__init__.py").write_text(f"SHIFT = {value['package']}\n")
    facts = site / f"tinypkg-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tinypkg\nVersion: {version}\n")


def enter(folder: Path, state: frozenset[str]) -> None:
    """Make this process one that runs in a folder, in a state."""
    os.chdir(folder)
    site = str(folder / "lib/site-packages")
    sys.path[:0] = [str(folder), site]
    os.environ["PYTHONPATH"] = site
    os.environ["XDG_DATA_HOME"] = str(folder)
    os.environ["LEVEL"] = str(CHANGE * ("variable" in state))
    sys.dont_write_bytecode = True
    environments.begin_study()
    version = environments._version
    if "torch" in state:
        environments._version = lambda name, place=(): (
            "1.13.1" if name == "torch" else version(name, place)
        )
    if "cpu" in state:
        environments.cpu = lambda: ("another CPU", "avx")
    if "commit" in state:
        environments.code_version = lambda: {"lmzoo": "0.2.0", "commit": "0badc0de"}


def forked(action: Callable[[], Any]) -> Any:
    """Return what a function returns in a forked process."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            result = action()
        except BaseException as error:
            result = error if isinstance(error, UserError) else UserError(repr(error))
        with os.fdopen(writer, "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(process, 0)
    return pickle.loads(data)


def study_of(who: str, state: frozenset[str], seeds: int) -> Study:
    """Return the study of a kind of program."""
    fields: dict[str, Any] = {}
    if who == "function":
        point = Point("point", import_source("own_function.py").train)
    elif who == "command":
        point = Point("point", Command(f"{sys.executable} candidate.py {{seed}}"))
    else:
        fields = {"corpus.length": 8}
        if who == "plugin":
            with noted():  # as a worker does
                import_source("own_plugin.py")
            fields |= {"model.width": 4, "model.emission": "vector"}
            point = Point("point", "recurrent_lm", {"cell": "own_cell"})
        else:
            order = 3 if "config" in state else 2
            point = Point("point", "ngram_count", {"order": order})
    return Study(
        name="labels", question="?", points=(point,), corpus="text:text.txt", fields=fields,
        search={}, epochs=2, seeds=seeds, samples=1, pruner="none",
    )  # fmt: skip


def command(
    folder: Path, out: str, who: str, state: frozenset[str], seeds: int, change: Any = None
) -> dict[str, Any]:
    """Run one command of the study: what it trained, what it said, and the loss in its ranking."""
    enter(folder, state)
    if change:
        change_after_first(change)
    said = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(said))
    if who == "judge":
        return judged(folder, out, seeds, said)
    study = study_of(who, state, seeds)
    fields = corpus = None
    if study.points[0].is_row:
        fields = corpus_config(study.corpus, {"length": 8})
        corpus = open_corpus(fields)
    path = store_folder(folder / out, study.name, fields, corpus.fingerprint if corpus else "")
    local_fleet.Planner = KeptPlanner
    events, _ = local_fleet.fleet_sweep(study, corpus, fields, path, workers=1)
    (planner,) = KeptPlanner.kept
    failed = [run.reason for run in planner.failed_runs]
    said.write(f"{failed} {planner.store.changed}")
    loss = math.nan
    with contextlib.suppress(UserError):
        said.write(str(load_study(path).study.get("data")))
        frame = study_ranking(path).frame
        loss = frame.filter(frame["label"] == "point")["loss"].item()
    own = {run.id for run in planner.reference.confirm_runs}
    trained = sum(run in own for run, _, _ in events.ended)
    return {"trained": trained, "failed": bool(failed), "loss": loss, "said": said.getvalue()}


class KeptPlanner(Planner):
    """A planner that can be asked after its sweep."""

    kept: ClassVar[list[Planner]] = []

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.kept.append(self)


def judged(folder: Path, out: str, seeds: int, said: io.StringIO) -> dict[str, Any]:
    """Judge the candidate; its loss is that of its first seed."""
    results = Results(folder / out)
    before = {*results.values}
    arms = [
        Arm(name, f"{sys.executable} {name}.py {{seed}}", folder, Metric("test"))
        for name in ("base", "candidate")
    ]
    failed = False
    try:
        judge_commands(*arms, results, max_seeds=seeds, say=lambda line: said.write(line))
    except UserError as error:
        failed = True
        said.write(str(error))
    own = results.of_now(arms[1], lambda _: None).identity
    trained = sum(arm == own for arm, _ in results.values.keys() - before)
    loss = results.values.get((own, 1), math.nan)
    return {"trained": trained, "failed": failed, "loss": loss, "said": said.getvalue()}


def change_after_first(change: Callable[[], None]) -> None:
    """Change something when the first epoch of this process has been reported."""
    once = threading.Lock()

    def later(method: Any) -> Any:
        def call(self: Any, *given: Any, **named: Any) -> Any:
            result = method(self, *given, **named)
            if once.acquire(blocking=False):
                time.sleep(0.02)  # a file's time has to differ
                change()
            return result

        return call

    ProgramRun._add = later(ProgramRun._add)
    Run.train_epoch = later(Run.train_epoch)
    Arm._run = later(Arm._run)


NAMES = {
    "script": "own_|base.py|candidate.py", "config": "config.json", "helper": "helper",
    "package": "tinypkg", "data": "data.csv|text", "checkpoint": "base.ckpt", "variable": "LEVEL",
    "torch": "torch", "cpu": "CPU", "commit": "commit|0badc0de",
}  # fmt: skip
"""Words by which a line names what has changed."""


def cells(what: str, who: str, known: dict[Any, dict[str, Any]]) -> dict[str, str]:
    """Return what happens at each moment; `known` has the commands of new stores."""
    if what in UNUSED.get(who, ()):
        return dict.fromkeys(WHEN, "-")
    folder = Path(tempfile.mkdtemp(prefix="labels-")).resolve()
    now = frozenset([what])

    def run(out: str, state: frozenset[str], seeds: int, change: Any = None) -> dict[str, Any]:
        write(folder, NOTHING if change else state)
        result = forked(
            lambda: command(folder, out, who, NOTHING if change else state, seeds, change)
        )
        if isinstance(result, UserError):
            raise result
        return result

    def new(state: frozenset[str], seeds: int) -> dict[str, Any]:
        key = who, state, seeds
        if key not in known:
            known[key] = run(f"N{len(known)}", state, seeds)
        return known[key]

    def change() -> None:
        write(folder, now)
        if what == "variable":
            os.environ["LEVEL"] = str(CHANGE)

    found = dict.fromkeys(WHEN, "")
    try:
        run("S", NOTHING, 2)
        found["after"] = described(run("S", now, 2), new(now, 2), 2, what)
        found["before"] = described(run("S", now, 3), new(now, 3), 2, what)
        found["taken back"] = described(run("S", NOTHING, 3), new(NOTHING, 3), 2, what)
        last = run("D", NOTHING, 2, change)
        found["during"] = described(last, new(now, 2), 0, what)
        if not last["failed"]:  # what a later command says
            found["during"] = described(run("D", now, 2), new(now, 2), 2, what)
    except UserError as error:
        return {when: text or f"error: {error}" for when, text in found.items()}
    finally:
        shutil.rmtree(folder)
    return found


def described(last: dict[str, Any], right: dict[str, Any], kept: int, what: str) -> str:
    """Return the word for what a command has trained, said and ranked."""
    is_said = any(name in last["said"] for name in NAMES[what].split("|"))
    if last["failed"]:
        return "fails" if is_said else f"FAILS: {last['said'][-200:]}"
    if not math.isclose(last["loss"], right["loss"], rel_tol=1e-9):
        return "mixed, said" if is_said else f"SILENT: {last['loss']} for {right['loss']}"
    again = last["trained"] - (right["trained"] - kept)
    if again > 0:
        return f"{again} runs again"
    return "same, said" if is_said else "same"


def table(columns: list[str], changes: list[str]) -> str:
    """Return the table of the documentation."""
    lines = [f"| changed | when | {' | '.join(columns)} |", "|---" * (2 + len(columns)) + "|"]
    known: dict[Any, dict[str, Any]] = {}
    for what in changes:
        found = [cells(what, who, known) for who in columns]
        for when in WHEN:
            lines.append(f"| {what} | {when} | {' | '.join(own[when] for own in found)} |")
            sys.stderr.write(lines[-1] + "\n")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("columns", nargs="*", default=[*WHO], help="which ones; none: all")
    parser.add_argument("--changes", nargs="+", choices=WHAT, default=[*WHAT])
    given = parser.parse_args()
    text = table(given.columns, given.changes)
    sys.stdout.write(text + "\n")
    sys.exit(any(word in text for word in ("SILENT", "FAILS", "error: ")))
