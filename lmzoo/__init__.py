"""lmzoo: train, ablate and compare small sequence models.

    import lmzoo

    model = lmzoo.build("DLM46", "captions", width=64)   a row of the zoo, for a corpus
    model.fit(epochs=3)
    model.score("a man rides a horse")                   log-probability in nats
    model.sample(3)
    lmzoo.run_study(lmzoo.Study(...))                    a polars frame: the ranking
    lmzoo.judge("results.csv", by="variant", metric="loss")    verdicts on anybody's results
    lmzoo.audit(function_or_module, vocab=50).faults     () for a normalised causal density

    lmzoo.zoo.names()                                    all rows of the zoo
    config = lmzoo.zoo.config("gru_mixture", width=64)   the config of a model
    module = lmzoo.zoo.build(config, task, seed=0)       the model, with initial weights

The subpackages and modules, from the top layer to the bottom layer:

    cli                         the command line: lmzoo list, train, rank, ...
    api                         build, load_run, run_study: the calls above
    bench                       a recorded study as a tabular benchmark
    inspect                     gates, attention, latents and boundaries of trained models
    judging                     verdicts on results that other programs produced
    sweep                       studies on Ray Tune
    analysis                    tables, statistics and plots from the records of studies
    trainables                  what a run trains: a row of the zoo, a function, a command
    laws                        what every model, cell, emission and corpus must obey
    train                       recipes, optimisers, trainer, checkpoints, packed training
    zoo                         rows, configs and models by name
    models                      the models, by family
    data, decode, blocks        corpora; sampling and beam search; parts of models
    contract, emissions         what a model is; from a vector to a distribution over tokens
    cells                       recurrent cells
    catalogue, seeding          rows; initial weights and random seeds
    functional, kernels         tensor functions; fast recurrences
    registry, command_line      named parts; helpers for command lines
    plugins, user_code          parts outside the package
    config, search_space        validated configs; search ranges
    store, device               files in folders and S3 buckets; choice of the device
    types, errors               tensor shapes; UserError

Importing lmzoo is fast: torch is imported at the first use of one of these names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lmzoo.errors import UserError
from lmzoo.version import __version__ as __version__

if TYPE_CHECKING:
    from lmzoo import zoo
    from lmzoo.api import TextModel, build, load_run, run_study
    from lmzoo.inspect.module_cuts import apply_cut, cuts
    from lmzoo.judging.verdicts import judge
    from lmzoo.laws.audit import audit
    from lmzoo.sweep import Command, Point, Study

__all__ = [
    "Command", "Point", "Study", "TextModel", "UserError", "apply_cut", "audit", "build", "cuts",
    "judge", "load_run", "run_study", "zoo",
]  # fmt: skip
_MODULES = {
    **dict.fromkeys(("TextModel", "build", "load_run", "run_study"), "lmzoo.api"),
    **dict.fromkeys(("Command", "Point", "Study"), "lmzoo.sweep"),
    **dict.fromkeys(("apply_cut", "cuts"), "lmzoo.inspect.module_cuts"),
    "audit": "lmzoo.laws.audit",
    "judge": "lmzoo.judging.verdicts",
}


def __getattr__(name: str) -> Any:
    if name == "zoo":
        return import_module("lmzoo.zoo")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'lmzoo' has no attribute {name!r}")
