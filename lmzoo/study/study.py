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

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmzoo.errors import UserError
from lmzoo.search_space import Range

Settings = Mapping[str, Any]
"""Dotted field path -> value: `{"recipe.lr": 0.01}`."""

NAME_BYTES = 160
"""Longest name of a study; a name of a folder has 255 bytes, with the corpus and a hash."""
PARALLEL_RUNS = 160
"""Tune runs of a whole study that start together with `parallel=0`, if it has enough samples."""


@dataclass(frozen=True)
class Point:
    """One alternative in a comparison: a model row with some model fields changed."""

    label: str
    row: str
    """Registry name or row id: `mutable_mgu_mixture`, `DLM46`."""
    fields: Settings = field(default_factory=dict)
    """Model fields without the leading `model.`: `{"cell.cuts": [4]}`."""
    search: Mapping[str, Range | None] | None = None
    """Searched fields of this point; None uses `Study.search`."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question, the points it compares, the searched fields and the budget of each point."""

    name: str
    question: str
    points: tuple[Point, ...]
    reference: str = ""
    """Label of the point that the others are compared with; "" selects the first."""
    corpus: str = "captions"
    recipe: str = "default"
    search: Mapping[str, Range | None] = field(default_factory=lambda: {"recipe.lr": None})
    """Searched field path -> range; None selects the range declared with the field."""
    off: tuple[str, ...] = ()
    """Searched fields of the script that the command line switched off."""
    fields: Settings = field(default_factory=dict)
    """Fields of all points, with the leading `model.`, `recipe.` or `corpus.`."""
    parameters: int = 0
    """Parameter budget: each point gets the largest `model.width` within it; 0 keeps the widths."""
    epochs: int = 10
    samples: int = 5
    """Settings tried for each point; the first is the default setting, if its range has it."""
    seeds: int = 5
    """New seeds on which the best setting of each point is trained."""
    margin: float = 0.02
    """Difference, in nats, within which two points count as equivalent."""
    max_seeds: int = 0
    """Seeds up to which points with an undecided difference are trained; 0: `seeds` only."""
    seed: int = 0
    """Seed of the study; suggestions and all training seeds derive from it."""
    grace: int = 2
    """First epoch at which asha, halving and median may stop a run."""
    reduction: int = 3
    """ASHA's η: about 1/η of the runs continue past each rung."""

    parallel: int = 0
    """Settings that a point starts together; 0: chosen from the numbers of points and samples.

    More start when these reach the first rung, and again at each later rung (`start_rules.py`).
    """
    sampler: Any = "tpe"
    """Where the settings come from: a name of `samplers.py`, or a sampler of Optuna."""
    pruner: Any = "response"
    """Which tune runs stop early: a name of `pruners.py`, or an object with its method."""
    callbacks: tuple[Any, ...] = ()
    """Logger callbacks of Ray Tune, to which each run is a trial."""
    script: tuple[str, ...] = ()
    """The words of the command that runs the study, without its options."""

    def check(self) -> None:
        """Check what can be checked without a corpus; a sweep does it before anything else.

        Raises:
            UserError: The name is not that of a folder, two points have one label, or a number is
                not finite.
        """
        if not self.name.strip() or self.name.startswith(".") or not self.name.isprintable():
            raise UserError(f"study name {self.name!r} is not a name of a folder; change it")
        if found := re.search(r"[/\\]", self.name):
            raise UserError(f"study name {self.name!r} has a {found[0]!r}; take another character")
        if (size := len(self.name.encode())) > NAME_BYTES:
            raise UserError(
                f"study name {self.name[:20]!r}... has {size} bytes; shorten it to {NAME_BYTES}"
            )
        if not self.points:
            raise UserError(f"study {self.name} has no points to compare")
        counts = Counter(" ".join(point.label.split()) for point in self.points)
        label, count = counts.most_common(1)[0]
        if count > 1:
            raise UserError(f"{count} points have the label {label!r}; give each its own label")
        if not math.isfinite(self.margin):
            raise UserError(f"margin {self.margin} is not a finite number of nats")

    @property
    def settings_in_parallel(self) -> int:
        """`parallel`, chosen if it is 0: the same on every cluster.

        At most half of the settings start together, so that the others are compared with them.
        """
        half, share = math.ceil(self.samples / 2), math.ceil(PARALLEL_RUNS / len(self.points))
        return self.parallel or min(half, share)

    def confirm_seeds(self, count: int) -> range:
        """Return the first training seeds of confirm runs; tuning does not use them."""
        first = self.seed * 1000 + 1
        return range(first, first + count)
