"""The published word table trained at once: 22 rows x 3 seeds x 20 epochs, in packs where possible.

Runs with one pack key are one program. Runs that sample noise (the row of the autoencoder) train
alone. Recipe and sizes are the published ones, the normaliser is the sound one. Without data, the
tokens are random, with the number and lengths of Multi30k's captions.

Source: S0 (word table).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from fuse import random_tokens

from lmzoo import zoo
from lmzoo.data.corpus import Corpus
from lmzoo.train.packed.compatibility import pack_key, reason_not_packable
from lmzoo.train.packed.kept_trainers import KeptTrainers
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import Training, fit

MGU = ((), (0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,), (0, 4, 5), (0, 2, 4, 5), (2, 3, 4, 5))
MGRU = ((4,), (5,), (4, 6), (4, 6, 7), (4, 6, 8), (4, 6, 9), (4, 6, 10), (4, 6, 11))
ROWS = (
    *(("DLM46", {"cell": {"cuts": list(cuts)}}) for cuts in MGU),
    *(("DLM47", {"cell": {"mutations": list(switches)}}) for switches in MGRU),
    ("DLM51", {"cell": {"name": "mgu", "cuts": [0, 4, 5]}}),
    ("DLM29", {}),
)


@dataclass(frozen=True)
class Table:
    """Sizes of the data, the models and the training."""

    width: int = 128
    components: int = 400
    seeds: int = 3
    epochs: int = 20
    vocab: int = 14_450
    train: int = 29_000
    valid: int = 1_014
    length: int = 20
    recipe: Recipe = RECIPES["published"]

    def __str__(self) -> str:
        rows = f"{len(ROWS)} rows x {self.seeds} seeds x {self.epochs} epochs"
        return f"{rows}, E={self.width}, K={self.components}, B={self.recipe.batch}"


def random_captions(table: Table) -> Corpus:
    """Return random tokens in sequences about as long as captions."""
    return random_tokens(table.vocab, (table.train, table.valid), table.length, 8)


def table_runs(table: Table, corpus: Corpus, device: torch.device) -> list[Training]:
    """Return a run of every row with every seed."""
    runs = []
    for name, fields in ROWS:
        sizes = {"width": table.width, "emission": {"components": table.components}}
        config = zoo.config(name, **zoo.overlay(fields, sizes))
        for seed in range(table.seeds):
            model = zoo.build(config, corpus.task, seed).to(device)
            runs.append(Training(model, table.recipe, seed))
    return runs


def train_all(trainings: Sequence[Training], corpus: Corpus, epochs: int) -> int:
    """Train every run and return the number of programs: packs, and runs that train alone."""
    groups: dict[str, list[Training]] = {}
    for training in trainings:
        groups.setdefault(pack_key(training.model.config, training.recipe), []).append(training)
    programs = 0
    for group in groups.values():
        if reason_not_packable(group[0].model):
            programs += len(group)
            for training in group:
                list(fit(training, corpus, epochs))
        else:
            programs += 1
            list(KeptTrainers().fit(group, corpus, epochs))
    assert all(run.epoch == epochs or run.diverged for run in trainings)
    return programs
