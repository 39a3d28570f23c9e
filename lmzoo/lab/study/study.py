"""A study: plain data that states a question, the points it compares, and the training budget.

    STUDY = Study(
        name="gru_ablation",
        question="Which single path of the minimal gated unit can be cut at least cost?",
        points=(Point("wild type", "DLM46"), Point("cut 4", "DLM46", {"cell.cuts": [4]})),
    )

A sweep trains each point in two stages:

1. tune: it tries `samples` settings of the searched fields, one training each. The first ones are
   the same for all points, the sampler proposes the others, and a pruner stops settings early.
   A fit to the validation losses of all points chooses the setting of each point.
2. confirm: it trains the best setting in full on `seeds` new seeds.

Tables read confirm runs only. A field path is dotted and starts with `model`, `recipe` or `corpus`:
`recipe.lr`, `model.cell.cuts`.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any

from lmzoo.base.arguments import constructed
from lmzoo.base.command_line import MOST, MOST_SEED
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Range, check_range, range_json, range_text, short_range

DIRECTIONS = ("minimize", "maximize")
Settings = Mapping[str, Any]
"""Dotted field path -> value: `{"recipe.lr": 0.01}`."""
Setting = dict[str, Any]
"""Values of the searched fields: one point of the search."""
Space = Mapping[str, Range]
"""What a point searches: field path -> range."""
Ranges = Mapping[str, Range | Any | None]
"""Dotted field path -> search range; None: the one declared with the field. A constructor
also takes a pair and a list (`short_range`)."""
KINDS: dict[Any, tuple[Any, str]] = {
    str: (str, "text"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    Settings: (object, "{FIELD: VALUE}"),
    Ranges: (
        Range | None,
        "{FIELD: RANGE}, such as {'recipe.lr': (1e-3, 1e-1)}; a range is a pair low, high, a list "
        "of values, FloatRange, IntRange or Choice",
    ),
}
"""Types of fields -> what values are, of mappings their values, and how a message says it."""

NAME_BYTES = 160
"""Longest name of a study; a name of a folder has 255 bytes, with the corpus and a hash."""
MOST_RUNS = 10_000_000
"""Runs of a study that the memory of a driver can hold."""
PARALLEL_RUNS = 160
"""Tune runs of a whole study that start together with `parallel=0`, if it has enough samples."""


class Declared:
    """A class whose search ranges may be given in their short forms."""

    def __post_init__(self):
        search = getattr(self, "search", None)
        if isinstance(search, Mapping):
            ranges = {path: short_range(value) for path, value in search.items()}
            # The way of a frozen dataclass to set its own field.
            object.__setattr__(self, "search", ranges)


@constructed
@dataclass(frozen=True)
class Point(Declared):
    """One alternative in a comparison: what it trains, with some settings changed."""

    label: str
    """Name of the point in tables and charts."""
    row: Any
    """A row of the zoo (`mutable_mgu_mixture`, `DLM46`), a Python function or a `Command`."""
    fields: Settings = field(default_factory=dict)
    """Model fields without the leading `model.`: `{"cell.cuts": [4]}`; of a function or a command
    its settings: `{"lr": 0.01}`."""
    search: Ranges | None = None
    """Searched fields of this point; None uses `Study.search`."""

    def __hash__(self) -> int:
        return hash(self.label)

    @property
    def is_row(self) -> bool:
        """Whether it trains a row of the zoo."""
        return isinstance(self.row, str)


@dataclass(frozen=True)
class Option:
    """How a field of a study is set on the command line."""

    help: str
    flag: str = ""
    """By default the name of the field: `--max-seeds`."""
    low: float | None = None
    """Lowest value."""
    switch: str = ""
    """A flag without which the field is 0."""
    switch_help: str = ""
    switched: int = 0
    """Value with the switch alone, if the script sets none."""


def option(help: str, *, default: Any, **declared: Any) -> Any:
    """Return a field that is an option of the command line and that `study.json` contains.

    The command line (`lab/sweep/command.py`), `study.json` and the command that runs the study
    again (`study_json.py`) follow from this declaration.
    """
    metadata = {"option": Option(help, **declared)}
    # A mutable default would be shared by all studies.
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def options(study: "Study | type[Study]") -> dict[str, Option]:
    """Return field -> option of all fields that decide what a study trains and how it is judged."""
    found = {}
    for declared in fields(study):
        option = declared.metadata.get("option")
        if option:
            flag = option.flag or f"--{declared.name.replace('_', '-')}"
            found[declared.name] = replace(option, flag=flag)
    return found


SEARCHED: Ranges = {"recipe.lr": None}
"""What a study searches, unless it says more: the learning rate."""


@constructed
@dataclass(frozen=True, kw_only=True)
class Study(Declared):
    """A question, the points it compares, the searched fields and the budget of each point."""

    name: str
    """Name of its folder in `runs/`."""
    question: str
    """What it asks; the first line of its results."""
    points: tuple[Point, ...]
    """What it compares."""
    reference: str = ""
    """Label of the point that the others are compared with; "" selects the first."""
    corpus: str = option("captions, multi30k_en, cath, text:PATH, ...", default="captions")
    recipe: str = option("default, published (reproduces S0) or muon_wsd.", default="default")
    parameters: int = option(
        "Parameter budget that sets each point's width; 0 keeps the widths.", low=0, default=0
    )
    fields: Settings = option(
        "FIELD=VALUE for all points: model.width=128, or on GPUs recipe.precision=tf32x3 "
        "(default), tf32, bf16",
        flag="--set",
        default={},
    )
    """Fields of all points, with the leading `model.`, `recipe.` or `corpus.`."""
    search: Ranges = option(
        "FIELD=LOW:HIGH[:log], FIELD=a,b,c or FIELD=off",
        flag="--search-space",
        default=SEARCHED,
    )
    """Searched field path -> range; None selects the range declared with the field."""
    off: tuple[str, ...] = option(
        "Searched fields of the script that the command line switched off.",
        flag="--search-space",
        default=(),
    )
    epochs: int = option("Epochs of every run that is not stopped early.", low=1, default=10)
    samples: int = option("Settings tried for each point.", low=1, default=5)
    """The first setting is the default one, if the search range has it."""
    parallel: int = option(
        "Settings that a point starts together; 0: chosen so that the study starts about "
        f"{PARALLEL_RUNS} runs together.",
        low=0,
        default=0,
    )
    """More start when these reach the first rung, and again at later rungs (`designs.py`)."""
    sampler: Any = option("tpe, gp or random.", default="tpe")
    """Where the settings come from: a name of `search.py`, or a sampler of Optuna."""
    pruner: Any = option("asha, halving or none.", default="halving")
    """Which tune runs stop early: a name of `search.py`, or an object with its method."""
    grace: int = option(
        "First epoch at which a tune run may stop; 0: half of the epochs.", low=0, default=0
    )
    reduction: int = option(
        "About one in this number of runs continues past each rung.",
        low=2,
        default=2,
    )
    """η of ASHA."""
    seeds: int = option(
        "New seeds on which each point's best setting is trained.", low=1, default=5
    )
    max_seeds: int = option(
        "Most settings, and most seeds, of a point with --until-decided.",
        low=1,
        switch="--until-decided",
        switch_help="Add settings or seeds where a difference from the reference is undecided.",
        switched=24,
        default=0,
    )
    """0: `seeds` only."""
    margin: float = option(
        "Difference that counts as negligible, in nats or in the unit of --metric.",
        low=0,
        default=0.02,
    )
    metric: str = option(
        "Metric of functions and commands by which settings are chosen.", default="valid"
    )
    test_metric: str = option(
        "Metric by which their points are compared; the last value of --metric if there is none.",
        default="test",
    )
    direction: str = option("minimize or maximize --metric.", default="minimize")
    solved: float = option(
        "Loss, or value of --metric, at which a run solves its task: points are compared by the "
        "share of such runs; 0: 95 % of the greatest accuracy, on a task that has one.",
        default=0.0,
    )
    unit: str = option("Unit of --metric: %, seconds, nats per token.", default="")
    seed: int = option("Seed of the study; all training seeds derive from it.", low=0, default=0)
    script: tuple[str, ...] = ()
    """The words of the command that runs the study, without its options."""
    given: tuple[str, ...] = field(default=(), compare=False)
    """The options that the command line gave, as words."""
    listeners: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    """Objects with `start(run)`, `epoch(run, record)` or `end(run, test)`, called in the driver."""

    def __post_init__(self):
        if not isinstance(self.points, tuple | list):
            raise UserError(f"points is {self.points!r:.60}; give (Point(LABEL, ROW), ...)")
        super().__post_init__()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        reference = self.reference
        if self.points and not reference:
            reference = self.points[0].label
        return (
            f"Study {self.name!r}: {self.question} {len(self.points)} points, reference "
            f"{reference!r}; {self.corpus}, {self.epochs} epochs, {self.samples} settings and "
            f"{self.seeds} seeds for each point"
        )

    def check(self):
        """Raise a `UserError` for what can be seen without a corpus; a sweep does it first."""
        self._check_types()
        if not self.name.strip() or self.name.startswith(".") or not self.name.isprintable():
            raise UserError(f"study name {self.name!r} is not a name of a folder; change it")
        # It would be a folder inside of another one.
        separator = re.search(r"[/\\]", self.name)
        if separator:
            raise UserError(
                f"study name {self.name!r} has a {separator[0]!r}; take another character"
            )
        # Letters of other alphabets have several bytes.
        size = len(self.name.encode())
        if size > NAME_BYTES:
            raise UserError(
                f"study name {self.name[:20]!r}... has {size} bytes; shorten it to {NAME_BYTES}"
            )
        self._check_points()
        # Not the runs that are likely, but those that are possible.
        runs = len(self.points) * (self.samples + max(self.seeds, self.max_seeds))
        if runs > MOST_RUNS:
            raise UserError(f"the study has {runs:,} runs; lower samples or seeds")
        if self.direction not in DIRECTIONS:
            raise UserError(f"direction {self.direction!r} is not {' or '.join(DIRECTIONS)}")
        # One sign holds for the whole study.
        if self.direction == "maximize" and any(point.is_row for point in self.points):
            raise UserError(
                "direction 'maximize': rows of the zoo have a loss, which is minimized; let the "
                "functions and commands report a loss in nats per token, too"
            )

    def _check_points(self):
        if not self.points:
            raise UserError(f"study {self.name} has no points to compare")
        # Tables and consoles show runs of spaces as one.
        labels = Counter(" ".join(point.label.split()) for point in self.points)
        for label in labels:
            if re.search("^$|[\ud800-\udfff]", label):
                raise UserError(
                    f"a point has the label {label!r}, which is no text; give it a name"
                )
        label, count = labels.most_common(1)[0]
        if count > 1:
            raise UserError(f"{count} points have the label {label!r}; give each its own label")

    def _check_types(self):
        for point in self.points:
            if not isinstance(point, Point):
                raise UserError(f"{point!r} is not a point; write Point(LABEL, ROW)")
            _check_types(point, f"point {point.label!r}: ")
        _check_types(self)
        for name, option in options(self).items():
            value = getattr(self, name)
            most = MOST
            if name == "seed":
                most = MOST_SEED
            # 0 is below the lowest value, and says that the switch is not set.
            if option.low is None or (option.switch and value == 0):
                continue
            if not option.low <= value <= most:
                raise UserError(f"{name} is {value!r}; give {option.low:g} to {most:,}")

    @property
    def sign(self) -> int:
        """The metric is `sign` times the loss in records."""
        if self.direction == "maximize":
            return -1
        return 1

    @property
    def search_words(self) -> str:
        """The ranges that the study and its points give, each once."""
        spaces = [self.search] + [point.search or {} for point in self.points]
        words = list[str]()
        for space in spaces:
            for path, bounds in space.items():
                if bounds:
                    words.append(range_text(path, range_json(bounds)))
        return ", ".join(dict.fromkeys(words))

    # A console asks for it at the end of each run.
    @functools.cached_property
    def shown_unit(self) -> str:
        """The unit of losses, as a console shows it."""
        if any(point.is_row for point in self.points):
            return "nats/token"
        if self.unit:
            return self.unit
        return self.metric

    @property
    def settings_in_parallel(self) -> int:
        """`parallel`, chosen if it is 0: the same on every cluster.

        At most half of the settings start together, so that the others are compared with them.
        """
        if self.parallel:
            return self.parallel
        # The same on a laptop and a cluster, so that both give the same study.
        half = math.ceil(self.samples / 2)
        share = math.ceil(PARALLEL_RUNS / len(self.points))
        return min(half, share)

    def confirm_seeds(self, count: int) -> range:
        """Return the first training seeds of confirm runs; tuning does not use them."""
        # A study with another seed shares no run.
        first = self.seed * 1000 + 1
        return range(first, first + count)


def _check_types(declared: Any, where: str = ""):
    """Raise a `UserError` for a field of a study or a point that has another type."""
    for each in fields(declared):
        value = getattr(declared, each.name)
        kind = each.type
        if kind == Ranges | None and value is not None:
            kind = Ranges
        # Points, listeners and objects check themselves.
        if kind not in KINDS:
            continue
        wanted, description = KINDS[kind]
        if kind in (Settings, Ranges):
            fits = _is_mapping(value, wanted)
        else:
            fits = isinstance(value, wanted) and not isinstance(value, bool)
        if not fits:
            raise UserError(f"{where}{each.name} is {value!r}; give {description}")
        if kind is Ranges and isinstance(value, Mapping):
            for path, bounds in value.items():
                check_range(f"{where}{each.name} {path}", bounds)


def _is_mapping(value: Any, wanted: Any) -> bool:
    """Return whether a value maps texts to values of a type."""
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(name, str) and isinstance(value[name], wanted) for name in value)
