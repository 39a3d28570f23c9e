"""The laws of the parts that a module registers, each as a check that can run by itself."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lmzoo import zoo
from lmzoo.base.registry import ROWS, Registry
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS
from lmzoo.data.corpus import CORPORA
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import NORMALISERS, Norm
from lmzoo.laws.cells import (
    CELL_LAWS,
    UNCUT_LAWS,
    disturbed_cell,
    law_equal_functions_have_equal_configs,
    option_sets,
)
from lmzoo.laws.corpora import CORPUS_LAWS
from lmzoo.laws.emissions import EMISSION_LAWS, build_emission
from lmzoo.laws.every_model import law_every_parameter_learns
from lmzoo.laws.options import Case, cases, some, unpromised
from lmzoo.laws.tiny import tiny
from lmzoo.laws_of_training import laws_for

PAIRS = 12
"""Pairs of options of a cell that are checked."""


@dataclass(frozen=True)
class Check:
    """One law of one part."""

    part: str
    """The part and its case: "cell mingru", "cell mingru in recurrent_lm, starts=2"."""
    law: Callable[[Any], None]
    build: Callable[[], Any]
    """Builds what the law takes."""

    def run(self):
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
            yield from _checks(f"emission {name}, norm={norm}", EMISSION_LAWS, build)
        single, _ = part_cases(EMISSIONS, name)
        default = (name, {"name": name})
        # Each option of the part alone: pairs are too many.
        for label, config in [default] + single:
            yield from _model_checks(f"emission {label} in", "recurrent_lm", emission=config)
    for name in _own(NORMALISERS, module):
        yield from _model_checks(f"normaliser {name} in", "recurrent_lm", norm=name)
    own_models = set(_own(MODELS, module))
    for name in ROWS:
        if ROWS[name].model in own_models:
            yield from _model_checks("model", name)
            for label, fields in row_cases(name)[0]:
                # Options that no law is promised for, such as a norm over time.
                if not unpromised(label):
                    yield from _model_checks(f"{label}: model", name, **fields)
    for name in _own(CORPORA, module):
        parsed = CORPORA.parse(name)
        build = functools.partial(CORPORA.build, parsed, None)
        yield from _checks(f"corpus {name}", CORPUS_LAWS, build)


def cell_checks(name: str) -> Iterator[Check]:
    """Yield the checks of a cell at each value of each option, alone and in a recurrent model.

    Pairs of values are drawn at random; the laws that take most of the time are left out there.
    """
    # A cell without options has no two configs that could be one function.
    if option_sets(CELLS[name].Config):
        build = functools.partial(disturbed_cell, name)
        yield Check(f"cell {name}", law_equal_functions_have_equal_configs, build)
    one, both = part_cases(CELLS, name)
    default = (name, {"name": name})
    for label, config in [default] + one:
        build = functools.partial(disturbed_cell, config)
        # An option, such as a cut, may remove the inputs or the state.
        laws = CELL_LAWS
        if label == name:
            laws = UNCUT_LAWS
        yield from _checks(f"cell {label}", laws, build)
        yield from _model_checks(f"cell {label} in", "recurrent_lm", cell=config)
    for label, config in some(both, PAIRS):
        build = functools.partial(disturbed_cell, config)
        yield from _checks(f"cell {label}", CELL_LAWS, build)
        build = functools.partial(tiny, "recurrent_lm", cell=config)
        yield Check(f"cell {label} in recurrent_lm", law_every_parameter_learns, build)
    # With two starts the model is a mixture over states, which one start is not.
    yield from _model_checks(f"cell {name} in", "recurrent_lm", cell={"name": name}, starts=2)


def part_cases(registry: Registry[Any], name: str) -> tuple[list[Case], list[Case]]:
    """Return the configs of a part at each value of each option, and at pairs of values."""
    part = {"name": name}

    def parse(fields: dict[str, Any]) -> Any:
        return registry.parse(part | fields)

    def named(kind: list[Case]) -> list[Case]:
        return [(f"{name}, {label}", part | fields) for label, fields in kind]

    single, double = cases(registry[name].Config, parse)
    return named(single), named(double)


def row_cases(name: str) -> tuple[list[Case], list[Case]]:
    """Return the fields of a row that differ, as `part_cases` does for a part."""
    config = zoo.config(name)
    return cases(type(config), functools.partial(zoo.change, config))


def _checks(part: str, laws: Iterable[Any], build: Callable[[], Any]) -> Iterator[Check]:
    for law in laws:
        yield Check(part, law, build)


def _model_checks(label: str, row: str, **fields: Any) -> Iterator[Check]:
    title = f"{label} {row}"
    if "starts" in fields:
        title += f", starts={fields['starts']}"
    build = functools.partial(tiny, row, **fields)
    model = MODELS[zoo.row(row).model or ""]
    yield from _checks(title, laws_for(model), build)


def _own(registry: Registry[Any], module: str) -> list[str]:
    found = []
    for name in registry:
        own = registry[name].__module__
        if f"{own}.".startswith(f"{module}."):  # the module itself, or one below it
            found.append(name)
    return found
