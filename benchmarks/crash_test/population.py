"""The population of trainings: families and tasks, recipes, and the variants of each study.

A study is a family of models on a task with a drawn recipe. `draw` 0 and 1 are two recipes of each
pair. The learning rate of its base is the best of eight, by the mean of runs that serve nothing
else. All variants but the wide, narrow and reordered ones differ from the base in numbers only, so
that they can be trained in one pack.

    base       seeds 0 to 95, and a second stream from 1000: exact no-ops
    inert      the same function in other words: a renamed field, another rounding of the rate, a
               loss whose sums have another order
    change     learning rates, clips, initialisations, schedules, weight decay, widths

The effect of a change is that of its seeds from 32 on; judges see the seeds below.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmzoo.base.seeds import derive_seed

if TYPE_CHECKING:
    from lmzoo.data.corpus import Corpus, Sequences

JUDGED, LAST = 32, 96
"""Seeds of a variant that judges see, and all of them; the others measure its effect."""
STREAM = 1000
"""First seed of the second stream of the base."""
RATES = tuple(0.001 * 2.0**k for k in range(8))
"""Learning rates of which the base has the best."""

_MIXTURE = {"emission": {"name": "mixture", "components": 16}}
_DECODER = {"layers": 1, "dropout": 0.0, "attention": {"heads": 2}}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "LSTM": ("lstm_lm", {}),
    "GRU": ("gru", {}),
    "MGU mixture": ("mutable_mgu_mixture", _MIXTURE),
    "tanh": ("rnn_lm", {}),
    "minGRU": ("min_gru", {}),
    "gated linear attention": ("gla", {}),
    "decoder": ("transformer_decoder_preln", _DECODER),
    "MLP of 4 tokens": ("markov_mlp", {"hidden": 32}),
    "log-bilinear": ("ngram_log_bilinear", {}),
    "gated convolution": ("gated_convolution", {"layers": 2}),
    "HMM": ("hmm", {"components": 16}),
    "aggregate Markov": ("aggregate_markov", {"components": 16}),
}
"""Family -> row of the zoo and fields."""
RECURRENT = ("LSTM", "GRU", "MGU mixture", "tanh", "minGRU")
TASKS: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "captions": ({"name": "captions"}, 1600, tuple(FAMILIES)),
    "characters": ({"name": "shakespeare_char", "block": 24}, 1600, tuple(FAMILIES)),
    "recall": (
        {"name": "mqar", "length": 16, "pairs": 2, "keys": 8, "train": 1600, "valid": 400},
        1600,
        (*RECURRENT, "gated linear attention", "decoder", "gated convolution"),
    ),
    "parity": (
        {"name": "parity", "length": 12, "test_length": 13, "train": 1600, "valid": 400},
        1600,
        ("LSTM", "GRU", "MGU mixture", "tanh"),
    ),
}
"""Task -> corpus, sequences of training, families."""
SEQUENCES = 400
"""Validation sequences."""
FIXED_LENGTH = ("characters", "recall", "parity")
"""Tasks whose sequences have equally many scored tokens."""


@dataclass(frozen=True)
class Variant:
    """How a variant differs from the base of its study."""

    kind: str
    """base, tune, inert or change."""
    rate: float = 1.0
    """The learning rate over that of the base; of `tune`, the rate itself."""
    recipe: dict[str, Any] = field(default_factory=dict)
    width: float = 1.0
    packed: bool = True
    """Whether a pack can hold it with the base."""


VARIANTS: dict[str, Variant] = {
    "base": Variant("base"),
    "renamed": Variant("inert", recipe={"warmup": 1}),
    "rounding": Variant("inert", rate=1 + 1e-6),
    "lr/4": Variant("change", rate=0.25),
    "lr/2": Variant("change", rate=0.5),
    "lr*0.7": Variant("change", rate=0.7),
    "lr*1.4": Variant("change", rate=1.4),
    "lr*2": Variant("change", rate=2.0),
    "lr*4": Variant("change", rate=4.0),
    "clip 0.1": Variant("change", recipe={"clip": 0.1}),
    "xavier": Variant("change", recipe={"init": "xavier_uniform"}),
    "normal 0.02": Variant("change", recipe={"init": "normal_0.02"}),
    "weight decay": Variant("change", recipe={"weight_decay": 3e-4}),
    "warmup": Variant("change", recipe={"warmup": 30}),
    "linear": Variant("change", recipe={"schedule": "linear"}),
    "cosine": Variant("change", recipe={"schedule": "cosine", "final_lr": 0.1}),
    "reordered": Variant("inert", recipe={"loss": "sentence"}, packed=False),
    "narrow": Variant("change", width=0.75, packed=False),
    "wide": Variant("change", width=1.25, packed=False),
}
TUNE = {f"tune {rate:g}": Variant("tune", rate=rate) for rate in RATES}


@dataclass(frozen=True)
class Study:
    """A family on a task with a recipe."""

    family: str
    task: str
    draw: int
    width: int
    batch: int
    epochs: int
    clip: float

    @property
    def name(self) -> str:
        return f"{self.family}, {self.task}, {self.draw}"


def studies(seed: int = 0) -> list[Study]:
    """Return all studies, the first recipe of all pairs first."""
    pairs = [(f, task) for task in TASKS for f in TASKS[task][2]]
    np.random.default_rng(derive_seed(seed, "order")).shuffle(pairs)
    return [_draw(family, task, draw, seed) for draw in (0, 1) for family, task in pairs]


def _draw(family: str, task: str, draw: int, seed: int) -> Study:
    random = np.random.default_rng(derive_seed(seed, family, task, draw))
    epochs = 6 if task in ("recall", "parity") else int(random.choice([3, 4, 5]))
    width, batch = int(random.choice([16, 24, 32])), int(random.choice([32, 50]))
    return Study(family, task, draw, width, batch, epochs, float(random.choice([0.5, 1.0])))


@dataclass(frozen=True)
class Pack:
    """Trainings of one study that can be one program: (variant, seed) each."""

    study: int
    priority: tuple[int, ...]
    members: tuple[tuple[str, int], ...]


def packs(all_studies: list[Study], size: int) -> list[Pack]:
    """Return all packs of at most `size` members, the most valuable ones first.

    First come, for every study, tuning, the judged seeds of the packed variants and the second
    stream of the base, which are one program; then half of the other seeds, the variants that
    need their own programs, and the other half. All first recipes are before the second ones, and
    more of the second stream is last.
    """
    packed = [name for name, variant in VARIANTS.items() if variant.packed]
    tuned = [(name, STREAM + s) for s in range(tuning_seeds(size)) for name in TUNE]
    blocks = [(name, s) for s in range(LAST) for name in packed]
    stream = [("base", STREAM + s) for s in range(5 * 256)]
    judged, half = JUDGED * len(packed), (JUDGED + LAST) // 2 * len(packed)
    found = []
    for i, study in enumerate(all_studies):
        alone = [n for n, v in VARIANTS.items() if not v.packed and is_allowed(n, study)]
        phases = {
            (study.draw, 0, i): [tuned, blocks[:judged], stream[:256]],
            (study.draw, 1, i): [blocks[judged:half]],
            (study.draw, 2, i): [[(n, s) for s in range(LAST)] for n in alone],
            (study.draw, 3, i): [blocks[half:]],
            (2, 0, i): [stream[256:]],
        }
        for place, lists in phases.items():
            for phase, members in enumerate(lists):
                for n in range(0, len(members), size):
                    found.append(Pack(i, (*place, phase, n), tuple(members[n : n + size])))
    return sorted(found, key=lambda pack: pack.priority)


def tuning_seeds(size: int) -> int:
    """Return the seeds of each rate that is tried, for packs of this size."""
    return max(4, min(32, size // 8))


def is_allowed(variant: str, study: Study) -> bool:
    """Return whether the study has the variant: sums can be reordered at equal lengths only."""
    return variant != "reordered" or study.task in FIXED_LENGTH


def load_corpus(task: str, data_dir: Path | None) -> "Corpus":
    """Return the corpus of a task, with as many sequences as are trained and validated."""
    from lmzoo.data.corpus import open_corpus  # torch, which only the workers need

    fields, train, _ = TASKS[task]
    corpus = open_corpus(fields, data_dir if fields["name"] == "shakespeare_char" else None)
    valid = _first(corpus.valid, SEQUENCES)
    # Context: no accuracy is computed, which a pack does for one member after the other.
    valid = dataclasses.replace(valid, context=True)
    return dataclasses.replace(
        corpus, train=_first(corpus.train, train), valid=valid, test=_first(valid, 1)
    )


def _first(part: "Sequences", count: int) -> "Sequences":
    scored = None if part.scored is None else part.scored[:count]
    return type(part)(part.ids[:count], part.lengths[:count], (), scored, part.context)
