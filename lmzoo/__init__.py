"""lmzoo: train, ablate and compare small sequence models.

Models:

    model = lmzoo.build("DLM46", "captions", width=64)   a row of the zoo, a TextModel
    model.fit(epochs=3)                                  recipe=lmzoo.Recipe(lr=0.03) to build it
    model.score("a man is standing")                   log-probability in nats
    model = lmzoo.load_run("runs/single/1f3a90c2d4e5")   a trained run
    lmzoo.cuts(module, *inputs)                          parts to cut; lmzoo.apply_cut cuts one
    lmzoo.audit(function_or_module, vocab=50).faults     () for a normalised causal density
    lmzoo.zoo.names()                                    all rows of the zoo

Studies:

    lmzoo.Study(..., points=(lmzoo.Point("cut 4", "DLM46", {"cell.cuts": [4]}), ...))
    lmzoo.main(study)                                    its command line
    lmzoo.run_study(study)                               trains it, and returns the ranking
    lmzoo.Point("mine", lmzoo.Command("python train.py --lr {lr}"))   another program
    search={"recipe.lr": (1e-3, 1e-1)}   short for a lmzoo.FloatRange or lmzoo.IntRange
    search={"model.width": [64, 128]}    short for a lmzoo.Choice
    lmzoo.shrink("DLM46")                                the smallest cell that is as good
    lmzoo.tune.trainable("DLM46", "captions")            a row in a Tuner of Ray Tune of your own

Results, as polars frames; STUDY is a Study, its folder, a file of records, or a name in runs/:

    lmzoo.rank(STUDY)                                    one row a point, with verdicts
    lmzoo.ablate(STUDY)                                  what cuts cost trained models
    lmzoo.runs(STUDY)                                    one row a run
    lmzoo.curves(STUDY)                                  one row an epoch of a run
    lmzoo.judge("results.csv", by="variant", metric="loss")    verdicts on anybody's results
    lmzoo.plan(STUDY, effect=0.02)                       seeds and hours of the next study

Bad input raises `lmzoo.UserError`. Importing lmzoo imports neither torch nor polars; a name that
needs one of them imports it at its first use.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.base.version import __version__ as __version__
from lmzoo.lab.study.commands import Command
from lmzoo.lab.study.study import Point, Study
from lmzoo.lab.sweep import main

# For type checkers only: at run time these would import torch or polars.
if _TYPE_CHECKING:
    from lmzoo import tune, zoo
    from lmzoo.ablation import ablate
    from lmzoo.api import TextModel, build, load_run, run_study
    from lmzoo.inspect.module_cuts import apply_cut, cuts
    from lmzoo.lab.analysis.frames import curves, rank, runs
    from lmzoo.lab.judging.plan import plan
    from lmzoo.lab.judging.verdicts import judge
    from lmzoo.laws.audit import audit
    from lmzoo.shrinking import shrink
    from lmzoo.train.recipe import Recipe

__all__ = [
    "Choice",
    "Command",
    "FloatRange",
    "IntRange",
    "Point",
    "Recipe",
    "Study",
    "TextModel",
    "UserError",
    "ablate",
    "apply_cut",
    "audit",
    "build",
    "curves",
    "cuts",
    "judge",
    "load_run",
    "main",
    "plan",
    "rank",
    "run_study",
    "runs",
    "shrink",
    "tune",
    "zoo",
]
# Imported at their first use, so that `import lmzoo` takes no seconds.
_LAZY = {
    "Recipe": "lmzoo.train.recipe",
    "TextModel": "lmzoo.api",
    "ablate": "lmzoo.ablation",
    "apply_cut": "lmzoo.inspect.module_cuts",
    "audit": "lmzoo.laws.audit",
    "build": "lmzoo.api",
    "curves": "lmzoo.lab.analysis.frames",
    "cuts": "lmzoo.inspect.module_cuts",
    "judge": "lmzoo.lab.judging.verdicts",
    "load_run": "lmzoo.api",
    "plan": "lmzoo.lab.judging.plan",
    "rank": "lmzoo.lab.analysis.frames",
    "run_study": "lmzoo.api",
    "runs": "lmzoo.lab.analysis.frames",
    "shrink": "lmzoo.shrinking",
}
"""Public name -> its module, which imports torch or polars."""


# Python calls it for names that the module does not have yet.
def __getattr__(name: str) -> _Any:
    if name in ("tune", "zoo"):
        return _import_module(f"lmzoo.{name}")
    if name in _LAZY:
        return getattr(_import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'lmzoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__ + ["__version__"])
