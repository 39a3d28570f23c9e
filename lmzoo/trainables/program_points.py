"""Points of a study that train a program of the user: a function or a command.

The settings of a program have names without a section: `lr`, where a row of the zoo has
`recipe.lr`. In a study with both, each point takes its own.
"""

import functools
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmzoo.base.command_line import SECTIONS
from lmzoo.base.environment import environment
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Range, middle
from lmzoo.data.corpus import Corpus
from lmzoo.lab.store.records import ENVIRONMENT, NUMERICS, PROGRAM, SCHEMA, USER_CODE, run_identity
from lmzoo.lab.store.user_code import UserCode
from lmzoo.lab.study.commands import Command
from lmzoo.lab.study.study import Point, Setting, Settings, Study
from lmzoo.lab.study.trainable import Config, Trainable
from lmzoo.trainables.functions import check_function, function_code, function_facts, takes_epochs

METRIC = "metric"
"""The kind of score of a program's metric, in a study without rows of the zoo."""


def of_programs(settings: Settings) -> dict[str, Any]:
    """Return the settings of programs."""
    kept = {}
    for path, value in settings.items():
        section, _, _ = path.partition(".")
        if section not in SECTIONS:
            kept[path] = value
    return kept


@dataclass
class ProgramPoint(Trainable):
    """A point that trains a function or a command."""

    program: Any
    """A function, or a `Command`."""
    model: Config
    """What a run's config says of the program, its metrics included."""
    settings: Settings
    corpus: Corpus | None
    """The corpus of the study's rows; its metric is their loss. None without rows."""
    corpus_config: Config

    @property
    def code(self) -> UserCode:
        return self._code

    @functools.cached_property
    def _code(self) -> UserCode:
        if isinstance(self.program, Command):
            return UserCode()  # its files are in `model`
        return function_code(self.program)

    @property
    def default_setting(self) -> Setting:
        return {
            path: self.settings.get(path, middle(bounds))
            for path, bounds in self.search_space.items()
        }

    @property
    def failure_loss(self) -> float:
        return math.inf

    def facts(self, *, known: bool = False) -> Config:
        score = "exact"
        if self.corpus is None:
            score = METRIC
        return {"score": score, "leaks": ""}

    def run_config(self, setting: Settings, seed: int) -> dict[str, Any]:
        kind = "function"
        if isinstance(self.program, Command):
            kind = "command"
        vocab = None
        length = None
        if self.corpus:
            vocab = self.corpus.task.vocab
            length = self.corpus.task.length
        config: dict[str, Any] = {
            "schema": SCHEMA,
            "numerics": NUMERICS,
            PROGRAM: kind,
            "model": self.model,
            "recipe": dict(self.settings) | dict(setting),
            "corpus": self.corpus_config,
            "fingerprint": _fingerprint(self.corpus),
            "vocab": vocab,
            "length": length,
            "seed": seed,
            "floor": None,
            "parameters": None,
        }
        config |= self.facts()
        config["working_folder"] = str(Path.cwd())
        # Code that changes makes another run.
        if self.code:
            config[USER_CODE] = self.code.facts
        return {"run": run_identity(config)} | config | {ENVIRONMENT: environment()}


def _fingerprint(corpus: Corpus | None) -> str:
    if corpus is None:
        return ""
    return corpus.fingerprint


def resolve_program(
    study: Study,
    point: Point,
    corpus: Corpus | None,
    corpus_fields: Config | None,
) -> ProgramPoint:
    """Return a point of a function or a command."""
    search = point.search
    if search is None:
        search = of_programs(study.search)
    space: dict[str, Range] = {}
    for path, bounds in search.items():
        # Rows declare ranges with their fields; a program declares nothing.
        if bounds is None:
            raise UserError(
                f"no search range is known for {path!r}; give one: "
                f"--search-space {path}=LOW:HIGH[:log]"
            )
        space[path] = bounds
    settings = of_programs(study.fields) | dict(point.fields)
    program = point.row
    if isinstance(program, Command):
        program.check(settings | space)
        facts = program.facts()
        is_longer = program.takes_epochs
    elif callable(program):
        check_function(program)
        facts = function_facts(program)
        is_longer = takes_epochs(program)
    else:
        raise UserError(
            f"{program!r} is not the name of a row, a function or a Command; give one of them"
        )
    model = facts | {
        "metric": study.metric,
        "test_metric": study.test_metric,
        "direction": study.direction,
    }
    if is_longer:  # a program that takes the epochs does other things with more of them
        model["epochs"] = study.epochs
    resolved = ProgramPoint(
        "",
        point.label,
        space,
        study.epochs,
        program,
        model,
        settings,
        corpus,
        corpus_fields or {},
    )
    identity = {
        "model": model,
        # The default of a searched setting is not part of the id.
        "settings": {path: value for path, value in settings.items() if path not in space},
        "searched": {path: repr(bounds) for path, bounds in sorted(space.items())},
        "fingerprint": _fingerprint(corpus),
        "seed": study.seed,
        "user_code": resolved.code.hash,
    }
    try:
        text = json.dumps(identity, sort_keys=True, allow_nan=False)
        # The store writes the ranges, too.
        json.dumps([vars(bounds) for bounds in space.values()], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"a setting is no plain value: {error}; give JSON types") from None
    resolved.id = hashlib.sha256(text.encode()).hexdigest()[:10]
    return resolved
