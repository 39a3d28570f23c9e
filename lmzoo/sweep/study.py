"""A study is a question: plain data, one file each in `sweeps/`.

    STUDY = Study(
        name="gru_ablation",
        question="Which single path of the minimal gated unit can be cut at least cost?",
        points=(Point("wild type", "DLM46"), Point("cut 4", "DLM46", {"cell.cuts": [4]})),
    )

The points are what is compared. For each, the fields in `search` are tuned on the
validation split with an equal budget of `samples` settings (early-stopped by ASHA
within that point only), and the best setting is then trained, un-pruned, on `seeds`
fresh seeds. Tables read only the latter. Field paths start at `model`, `recipe` or
`corpus`: `recipe.lr`, `model.cell.cuts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmzoo.search_space import Range

Settings = Mapping[str, Any]
"""Field path -> value, paths dotted: `{"recipe.lr": 0.01}`."""


@dataclass(frozen=True)
class Point:
    """One thing compared: a row of the zoo with some model fields set."""

    label: str
    row: str
    """Registry name or seed id: `mutable_mgu_mixture`, `DLM46`."""
    fields: Settings = field(default_factory=dict)
    """Model fields, dotted, without the leading `model.`: `{"cell.cuts": [4]}`."""
    search: Mapping[str, Range | None] | None = None
    """What is tuned for this point, where it is not what the study says."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """The question, the points it compares, what is searched, and the budget of each."""

    name: str
    question: str
    points: tuple[Point, ...]
    reference: str = ""
    """Label of the point that others are compared with; '' is the first."""
    corpus: str = "captions"
    recipe: str = "default"
    search: Mapping[str, Range | None] = field(default_factory=lambda: {"recipe.lr": None})
    """What is tuned: a range, or None for the one beside the field's default."""
    off: tuple[str, ...] = ()
    """Fields that the study's file tunes and a command line did not."""
    fields: Settings = field(default_factory=dict)
    """Fields common to all points, with their leading `model.`, `recipe.` or `corpus.`."""
    parameters: int = 0
    """Every point's `model.width` is the largest within so many parameters; 0 leaves it."""
    epochs: int = 10
    samples: int = 4
    """Settings tried for each point; the first is the default one."""
    seeds: int = 5
    """Fresh seeds on which the best setting of each point is confirmed."""
    seed: int = 0
    """Seed of the study itself: its suggestions, and all training seeds, derive from it."""
    generation: int = 2
    """Settings of one point tried side by side; see `engine/schedule.py`."""
    grace: int = 2
    """Epochs before ASHA may stop a run."""
    reduction: int = 3
    """ASHA's η: about one in η goes on past each rung."""

    @property
    def tune_seed(self) -> int:
        """The one seed on which settings are compared."""
        return self.seed * 1000

    @property
    def confirm_seeds(self) -> range:
        """Seeds that tuning never saw."""
        return range(self.tune_seed + 1, self.tune_seed + 1 + self.seeds)
