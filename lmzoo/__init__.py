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

Importing lmzoo is fast: torch is imported at the first use of one of these names.
"""

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from lmzoo.base.errors import UserError
from lmzoo.base.version import OldNames as _OldNames
from lmzoo.base.version import __version__ as __version__

if _TYPE_CHECKING:
    from lmzoo import zoo
    from lmzoo.api import TextModel, build, load_run, run_study
    from lmzoo.inspect.module_cuts import apply_cut, cuts
    from lmzoo.lab.judging.verdicts import judge
    from lmzoo.lab.sweep import Command, Point, Study, main
    from lmzoo.laws.audit import audit

_sys.meta_path.append(_OldNames())

__all__ = [
    "Command", "Point", "Study", "TextModel", "UserError", "apply_cut", "audit", "build", "cuts",
    "judge", "load_run", "main", "run_study", "zoo",
]  # fmt: skip
_MODULES = {
    **dict.fromkeys(("TextModel", "build", "load_run", "run_study"), "lmzoo.api"),
    **dict.fromkeys(("Command", "Point", "Study", "main"), "lmzoo.lab.sweep"),
    **dict.fromkeys(("apply_cut", "cuts"), "lmzoo.inspect.module_cuts"),
    "audit": "lmzoo.laws.audit",
    "judge": "lmzoo.lab.judging.verdicts",
}


def __getattr__(name: str) -> _Any:
    if name == "zoo":
        return _import_module("lmzoo.zoo")
    if name in _MODULES:
        return getattr(_import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'lmzoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
