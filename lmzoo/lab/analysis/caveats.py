"""What makes the numbers of a ranking doubtful, and the command that answers it.

`caveats` returns all of it, the gravest first, and every form of a ranking prints it:

    below the entropy             no causal density has such a loss
    no model below the unigram    no trained point is better than the worst model of counts
    models lose to the 5-gram     as `ranking.py` says
    curves still fall             each doubling up to the epochs named gains more than the margin
                                  (`statistics/longer.py`); differences that moved by more, too,
                                  are said
    data                          what the user's text leaks or lost, and damaged files
    marks                         those of a ranking, such as a chosen setting at an edge

The next command of a ranking answers its first caveat that a sweep can answer. Without one it
decides what is open, with more seeds last.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from polars import DataFrame, col

from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.search_space import FloatRange, near_bound, range_text
from lmzoo.lab.analysis.formatting import METRIC, join_labels, labels_of
from lmzoo.lab.analysis.load import StudyFolder, is_maximized, learning_curves
from lmzoo.lab.analysis.ranking import LOSES, baseline_name
from lmzoo.lab.analysis.render import store_address
from lmzoo.lab.analysis.words import WORDS
from lmzoo.lab.statistics.compared import MARGIN, UNDECIDED
from lmzoo.lab.statistics.longer import Longer, longer
from lmzoo.lab.store.records import RUNS

MARKS: dict[str, str] = WORDS["marks"]
"""Marks of a ranking, as its legend explains them."""
MOST_NAMED = 3
"""Points that a line names."""
DAMAGED = 5
"""Damaged files that a ranking names; the others are counted."""
WIDER = 4
"""A range that is too narrow ends at this multiple of its bound."""
COUNTS = (col("parameters") == 0).fill_null(value=False)
"""Models of counts, baselines or points; the parameters of the user's programs are not known."""


class Caveat(NamedTuple):
    """One line about what is doubtful."""

    text: str
    is_grave: bool = False
    """Whether all numbers are doubtful, so that it stands before the answer."""
    aim: str = ""
    """What the next command is for; "" if no sweep answers the caveat."""
    options: Mapping[str, str] | None = None
    """Options of that sweep."""


def caveats(folder: StudyFolder, frame: DataFrame) -> list[Caveat]:
    """Return what makes the numbers of a study doubtful, the gravest first."""
    # Training stands before marks: more seeds do not help models that have hardly learned.
    found = list(_impossible(frame))
    found += _training(folder, frame)
    found += _data(folder)
    found += _marks(folder, frame)
    with_runs = set(frame["point"])
    absent = [label for point, label in labels_of(folder.study).items() if point not in with_runs]
    if absent:
        found.append(Caveat(f"no run yet: {join_labels(absent)}", aim="to train the rest"))
    # Equals keep their order: the next command answers the first caveat that a sweep can answer.
    return sorted(found, key=lambda caveat: not caveat.is_grave)


def _impossible(frame: DataFrame) -> Iterator[Caveat]:
    losses = []
    is_impossible = col("marks").list.contains("impossible")
    for row in frame.filter(is_impossible).to_dicts():
        losses.append(f"{row['label']} {row['loss']:.3f} (entropy {row['floor']:.3f})")
    if losses:
        yield Caveat(
            "WARNING: below the entropy of the source, which no causal density is: "
            f"{', '.join(losses)}; see `lmzoo audit`",
            is_grave=True,
        )


def _data(folder: StudyFolder) -> Iterator[Caveat]:
    """Yield what the user's text lost or leaks, from `study.json`, and what damage leaves out."""
    data = folder.study.get("data") or {}
    said = list(data.get("warnings", ()))
    said += folder.damaged[:DAMAGED]
    more = len(folder.damaged) - DAMAGED
    if more > 0:
        said.append(f"{more} more files are damaged")
    for text in said:
        yield Caveat(f"WARNING: {text}")


def _training(folder: StudyFolder, frame: DataFrame) -> Iterator[Caveat]:
    """Yield that models are hardly trained, lose to counts, or still learn."""
    found = longer_training(folder)
    budget = folder.study["budget"]["epochs"]
    baseline = _hardly_trained(frame)
    if baseline:
        wanted = max(found.epochs, 4 * budget)
        text = f"No point is better than {baseline}: they are hardly trained; raise --epochs to "
        yield _train_longer(f"{text}about {wanted}.", wanted)
        return
    epochs = found.epochs
    losing = _losing(frame)
    if losing and budget == 1:
        # A single epoch has no curve that says how many are enough.
        epochs = 4
        yield _train_longer(f"{losing} Raise --epochs.", epochs)
    elif losing:
        yield Caveat(losing, is_grave=True)
    if found.epochs > budget:
        yield _train_longer(longer_words(folder, found, frame), epochs)


def _train_longer(text: str, epochs: int) -> Caveat:
    options = {"--epochs": str(epochs)}
    return Caveat(text, is_grave=True, aim="to train longer", options=options)


def longer_training(folder: StudyFolder) -> Longer:
    """Return what longer training would bring to the points that a study trains."""
    curves = learning_curves(folder)
    # Baselines of one epoch have no curve.
    study = folder.study
    epochs = pl.n_unique("epoch").over("label")
    trained = curves.filter(epochs > 1)
    if trained.is_empty():
        return Longer(0.0, 0.0, study["budget"]["epochs"])
    last: Any = trained["epoch"].max()
    names = trained["label"].unique(maintain_order=True)
    places = {name: place for place, name in enumerate(names)}
    losses = np.full((len(names), last), nan)
    for row in trained.to_dicts():
        place = places[row["label"]]
        losses[place, row["epoch"] - 1] = row["loss"]
    if is_maximized(study):
        # Frames have the metric as the program reported it; `longer` wants losses.
        losses = -losses
    reference = labels_of(study).get(study.get("reference", ""), "")
    margin = float(study.get("margin", MARGIN))
    return longer(losses, places.get(reference), margin)


def longer_words(folder: StudyFolder, found: Longer, frame: DataFrame) -> str:
    """Return what the curves of a study ask for."""
    verb = "fall"
    if is_maximized(folder.study):
        verb = "rise"
    # Curves stay in nats: a validation text has another size than the test text.
    unit = "nats"
    if frame["score"].item(0) == METRIC:
        unit = frame["metric"].item(0)
    told = (
        f"The curves still {verb}: the last doubling of the epochs brought {found.gain:.2g} {unit}"
    )
    # Losses that fall alike leave the differences as they are.
    if found.moved > float(folder.study.get("margin", MARGIN)):
        told = f"{told} and moved the differences by {found.moved:.2g}"
    return f"{told}; raise --epochs to about {found.epochs}."


def _losing(frame: DataFrame) -> str:
    """Return which models lose to the baseline of counts; "" if none does."""
    compared = frame.drop_nulls("kn5")
    # Only those whose whole interval is above the baseline lose to it.
    losing = compared.filter(kn5=LOSES)
    if losing.is_empty():
        return ""
    labels = losing["label"].to_list()
    count = len(labels)
    of_all = len(compared)
    named = join_labels(labels)
    if count == 1:
        who = f"{named} loses"
    elif count == of_all == 2:
        who = "Both models lose"
    elif count == of_all:
        who = f"All {count} models lose"
    elif count <= MOST_NAMED:
        who = f"{named} lose"
    else:
        who = f"{count} of {of_all} models lose"
    row = losing.row(0, named=True)
    loss = row["loss"] - row["kn5_difference"]
    return f"{who} to the {baseline_name(frame)} ({loss:.3f}), a model of counts."


def _hardly_trained(frame: DataFrame) -> str:
    """Return the worst model of counts and its loss if no model is better; else ""."""
    losses = frame.sort("loss").drop_nulls("loss")
    worst = losses.filter(COUNTS).tail(1)
    best = losses.filter(~COUNTS).head(1)
    if worst.is_empty() or best.is_empty():
        return ""
    label, loss = worst.select("label", "loss").row(0)
    if best["loss"].item() < loss:
        return ""
    return f"{label} ({loss:.3f})"


def _marks(folder: StudyFolder, frame: DataFrame) -> Iterator[Caveat]:
    """Yield a line for each mark that makes numbers doubtful, with the points that have it."""
    for mark, text in MARKS.items():
        marked = col("marks").list.contains(mark)
        if mark == "noisy":  # the verdict of a point says it all, if it has one
            is_open = col("verdict") == UNDECIDED
            marked &= col("reference") | is_open
        own = frame.filter(marked)
        labels = own["label"].to_list()
        # `impossible` has a line of its own, above all others.
        if not labels or mark in ("fixed", "impossible"):
            continue
        if mark == "edge":
            yield from _edges(folder.study, own)
        else:
            aim = ""
            if mark in ("missing", "unconfirmed"):
                aim = "to train the rest"
            reason, _, _ = text.partition(".")
            yield Caveat(f"{mark}: {_named(labels)}: {reason}", aim=aim)
    for reason, labels in leaks_of(frame):
        yield Caveat(f"leaks: {_named(labels)}: not a language model's loss: {reason}")


def leaks_of(frame: DataFrame) -> list[tuple[str, list[str]]]:
    """Return each leak of a ranking, and the labels of its points."""
    leaking = frame.filter(col("leaks") != "")
    by_reason = leaking.group_by("leaks", maintain_order=True)
    return by_reason.agg("label").rows()


def _edges(study: Fields, marked: DataFrame) -> Iterator[Caveat]:
    """Yield which points chose an outermost value, and what to do: a bound has no value beyond."""
    spaces = {point["id"]: point.get("search") or study["search"] for point in study["points"]}
    wider = {}
    at_bound = []
    inside = []
    for row in marked.to_dicts():
        setting = json.loads(row["setting"])
        for field in row["edge"]:
            value = setting[field]
            chosen = (row["label"], field)
            ends = spaces[row["point"]].get(field, {})
            # A choice of values has no bound that could be moved.
            if "low" in ends and near_bound(value, FloatRange(**ends)):
                wider[field] = range_text(field, _widened(ends, value))
                at_bound.append(chosen)
            else:
                inside.append(chosen)
    aim = "to tune more"
    if at_bound:
        options = {}
        ways = []
        for field, space in wider.items():
            options[f"--search-space {field}"] = space
            ways.append(f"--search-space {space}")
        wide = " ".join(ways)
        text = f"{_edge_words(at_bound)}, at a bound; search a wider range ({wide})"
        yield Caveat(text, aim=aim, options=options)
    if inside:
        samples = str(2 * study["budget"]["samples"])
        text = f"{_edge_words(inside)}; try more (--samples {samples})"
        yield Caveat(text, aim=aim, options={"--samples": samples})


def _edge_words(chosen: Sequence[tuple[str, str]]) -> str:
    """Return which points have an outermost value, from (point, field)."""
    labels = dict.fromkeys(label for label, _ in chosen)
    fields = dict.fromkeys(field for _, field in chosen)
    where = f"{_named(list(labels))}: {', '.join(fields)}"
    return f"edge: {where}: the chosen value is the first or last one tried"


def _widened(ends: Fields, value: float) -> FieldsDict:
    """Return a range that goes on beyond the bound at which a value is."""
    low = ends["low"]
    high = ends["high"]
    span = high - low
    is_log = ends.get("log", False)
    at_low = value - low < high - value
    if is_log:
        # On a logarithmic range, distances are ratios.
        at_low = value / low < high / value
    if not at_low:
        beyond = high + span
        if is_log:
            beyond = WIDER * high
        return dict(ends) | {"high": type(high)(beyond)}
    beyond = low - span
    if is_log or 0 < low < span:
        beyond = low / WIDER
    wider = type(low)(beyond)
    return dict(ends) | {"low": wider or low}


def _named(labels: Sequence[str]) -> str:
    named = join_labels(labels[:MOST_NAMED])
    if len(labels) <= MOST_NAMED:
        return named
    return f"{named} and {len(labels) - MOST_NAMED} more"


def next_command(folder: StudyFolder, frame: DataFrame, found: Sequence[Caveat]) -> tuple[str, str]:
    """Return what to do next and its command: the sweep that answers most, or the page."""
    study = folder.study
    undecided = frame.filter(verdict=UNDECIDED)
    answerable = [caveat for caveat in found if caveat.aim]
    is_decided = not answerable and undecided.is_empty()
    # `against` leaves `given` out: more seeds would go to comparisons with the study's reference.
    if is_decided or not study.get("script") or "given" not in study:
        name = folder.address.name
        address = shown_address(folder.address)
        # Commands find a study in `runs` by its name; one elsewhere needs its address.
        if address != str(RUNS / name):
            name = address
        return "next", f"lmzoo report {shlex.quote(name)}"
    command = list(study["script"])
    command += study["given"]
    if answerable:
        # The gravest one: while it is open, an answer to a later one is of little use.
        first = answerable[0]
        options = first.options or {}
        for name, value in options.items():
            command = _with_option(command, name, value)
        return first.aim, shlex.join(command)
    if "--until-decided" in command:
        most = str(2 * study["asked"]["max_seeds"])
        command = _with_option(command, "--max-seeds", most)
    else:
        command.append("--until-decided")
    return "to decide more", shlex.join(command)


def shown_address(path: Path) -> str:
    """Return a path as people type it, relative to the working folder."""
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return store_address(path)


def _with_option(command: Sequence[str], name: str, value: str) -> list[str]:
    """Return a command with this value of an option, which it may have already.

    The name of an option that can be repeated has its field, as "--search-space recipe.lr".
    """
    name, _, field = name.partition(" ")
    if field:
        field += "="
    rest = []
    words = iter(command)
    for word in words:
        # People write --name=value and --name value.
        option, equals, given = word.partition("=")
        if option != name:
            rest.append(word)
            continue
        if not equals:
            given = next(words, "")
        if not given.startswith(field):
            rest += [name, given]
    return rest + [name, value]
