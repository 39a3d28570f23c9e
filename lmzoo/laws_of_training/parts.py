"""The laws of the parts that a module registers, each as a check that can run by itself."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.base.registry import ROWS, Registry
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS
from lmzoo.data.corpus import CORPORA
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import NORMALISERS, Norm
from lmzoo.laws.cells import CELL_LAWS, UNCUT_LAWS, disturbed_cell, option_sets
from lmzoo.laws.corpora import CORPUS_LAWS
from lmzoo.laws.emissions import EMISSION_LAWS, build_emission
from lmzoo.laws.tiny import tiny
from lmzoo.laws_of_training import laws_for


@dataclass(frozen=True)
class Check:
    """One law of one part."""

    part: str
    """The part and its case: "cell mingru", "cell mingru in recurrent_lm, starts=2"."""
    law: Callable[[Any], None]
    build: Callable[[], Any]
    """Builds what the law takes."""

    def run(self) -> None:
        """Raise AssertionError if the law does not hold."""
        self.law(self.build())

    @property
    def name(self) -> str:
        """The law in words: "outputs depend on inputs"."""
        return self.law.__name__.removeprefix("law_").replace("_", " ")


def checks(module: str) -> Iterator[Check]:
    """Yield the checks of all parts that a module, or a module of the package `module`, defines."""
    for name in _own(CELLS, module):
        yield from cell_checks(name)
    for name in _own(EMISSIONS, module):
        for norm in Norm:
            build = functools.partial(build_emission, {"name": name}, norm)
            yield from (Check(f"emission {name}, norm={norm}", law, build) for law in EMISSION_LAWS)
        yield from _model_checks(f"emission {name} in", "recurrent_lm", emission=name)
    for name in _own(NORMALISERS, module):
        yield from _model_checks(f"normaliser {name} in", "recurrent_lm", norm=name)
    own_models = set(_own(MODELS, module))
    for name in ROWS:
        if ROWS[name].model in own_models:
            yield from _model_checks("model", name)
    for name in _own(CORPORA, module):
        build = functools.partial(CORPORA.build, CORPORA.parse(name), None)
        yield from (Check(f"corpus {name}", law, build) for law in CORPUS_LAWS)


def cell_checks(name: str) -> Iterator[Check]:
    """Yield the checks of a cell and of each single cut, alone and in a recurrent model."""
    for config in [{"name": name}, *_single_cuts(name)]:
        cut = [f"{key}={value[0]}" for key, value in config.items() if key != "name"]
        label = ", ".join([f"cell {name}", *cut])
        build = functools.partial(disturbed_cell, config)
        yield from (Check(label, law, build) for law in (CELL_LAWS if cut else UNCUT_LAWS))
        yield from _model_checks(f"{label} in", "recurrent_lm", cell=config)
    yield from _model_checks(f"cell {name} in", "recurrent_lm", cell={"name": name}, starts=2)


def _model_checks(label: str, row: str, **fields: Any) -> Iterator[Check]:
    extra = [f"{key}={value}" for key, value in fields.items() if key == "starts"]
    title = ", ".join([f"{label} {row}", *extra])
    build = functools.partial(tiny, row, **fields)
    for law in laws_for(MODELS[zoo.row(row).model or ""]):
        yield Check(title, law, build)


def _single_cuts(name: str) -> Iterator[dict[str, Any]]:
    """Yield the configs with one member of each field that is a set of options, such as cuts."""
    for field, options in option_sets(CELLS[name].Config).items():
        for option in options:
            config = {"name": name, field: [option.value]}
            try:
                CELLS.parse(config)
            except UserError:  # the cell refuses this cut
                continue
            yield config


def _own(registry: Registry[Any], module: str) -> list[str]:
    modules = {name: registry[name].__module__ for name in registry}
    return [name for name, own in modules.items() if f"{own}.".startswith(f"{module}.")]
