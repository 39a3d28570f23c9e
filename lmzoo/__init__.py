"""lmzoo: train, ablate and compare small sequence models.

    import lmzoo

    lmzoo.zoo.names()                                    all rows of the zoo
    config = lmzoo.zoo.config("gru_mixture", width=64)   the config of a model
    model = lmzoo.zoo.build(config, task, seed=0)        the model, with initial weights

The subpackages and modules, from the top layer to the bottom layer:

    cli                         the command line: lmzoo list, train, rank, ...
    inspect                     gates, attention, latents and boundaries of trained models
    sweep, experiments          studies on Ray Tune; other trainings
    analysis                    tables, statistics and plots from the records of studies
    train                       recipes, optimisers, trainer, checkpoints, packed training
    audit                       causality, leak budget, gradient horizon
    zoo                         rows, configs and models by name
    models                      the models, by family
    data, decode, blocks        corpora; sampling and beam search; parts of models
    contract, emissions         what a model is; from a vector to a distribution over tokens
    cells                       recurrent cells
    catalogue, seeding          rows; initial weights and random seeds
    functional, kernels         tensor functions; fast recurrences
    registry, command_line      named parts; helpers for command lines
    config, search_space        validated configs; search ranges
    store, device               files in folders and S3 buckets; choice of the device
    types, errors               tensor shapes; UserError

Importing lmzoo is fast: torch is imported at the first use of `lmzoo.zoo`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lmzoo.errors import UserError

if TYPE_CHECKING:
    from lmzoo import zoo

__all__ = ["UserError", "zoo"]


def __getattr__(name: str) -> Any:
    if name == "zoo":
        return import_module("lmzoo.zoo")
    raise AttributeError(f"module 'lmzoo' has no attribute {name!r}")
