"""Points of a study that train a row of the zoo: configs, search space, identity."""

import contextlib
import functools
import hashlib
import itertools
import json
import math
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lmzoo import zoo
from lmzoo.base.command_line import SECTIONS, nest_settings
from lmzoo.base.config import add_defaults, to_dict
from lmzoo.base.errors import UserError, near
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.registry import part_modules
from lmzoo.base.search_space import Choice, Range, ranges
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS, LanguageModel
from lmzoo.data.batches import epoch_batches, gather_batch
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.kernels.device import CPU, check_precision
from lmzoo.kernels.guest import guest
from lmzoo.lab.store.labels import architecture, display_label
from lmzoo.lab.store.user_code import UserCode
from lmzoo.lab.study.study import Point, Setting, Settings, Study
from lmzoo.lab.study.trainable import Config, Trainable
from lmzoo.laws.learned import learned
from lmzoo.train.recipe import Recipe, named_recipe
from lmzoo.train.run import identity_config, model_facts, parts_code
from lmzoo.trainables.parameter_budget import count_parameters, fit_width

STEPS = 3
"""Training steps timed for an estimate, after one that is not timed."""
MOST_COMBINATIONS = 1000
"""Values of the other searched fields with which a value is tried."""
SCHEDULE = {"recipe.schedule", "recipe.schedule_epochs", "recipe.final_lr", "recipe.cooldown"}


@dataclass
class RowPoint(Trainable):
    """A point that trains a row of the zoo: its model, its recipe and its corpus."""

    model: Any
    recipe: Recipe
    corpus: Corpus
    corpus_config: Config

    @property
    def display_label(self) -> str:
        return display_label(self.label, MODELS.dump(self.model).get("cell"))

    @property
    def display_aliases(self) -> list[str]:
        cell = MODELS.dump(self.model).get("cell")
        return [display_label(alias, cell) for alias in self.aliases]

    def run_config(self, setting: Settings, seed: int) -> FieldsDict:
        model, recipe = self.with_setting(setting)
        # Computed once: a study has thousands of runs, which differ in the setting.
        known = self._known
        if model is not self.model:
            known = MODELS.dump(model), self._code_of(model)
        return identity_config(model, recipe, self.corpus, self.corpus_config, seed, known)

    @functools.cached_property
    def _known(self) -> tuple[Config, UserCode]:
        """The fields of the model and the code with which the sweep began."""
        return MODELS.dump(self.model), parts_code(self.model, self.corpus_config)

    def _code_of(self, model: Any) -> UserCode:
        # A setting may choose another part, whose file is code of the run.
        if part_modules(model) == part_modules(self.model):
            return self.code
        return parts_code(model, self.corpus_config)

    @property
    def code(self) -> UserCode:
        return self._known[1]

    def facts(self, *, known: bool = False) -> Config:
        return model_facts({"model": MODELS.dump(self.model)}, self.corpus.task, known=known)

    def with_facts(self, config: Config) -> Config:
        return dict(config) | model_facts(config, self.corpus.task)

    def with_setting(self, setting: Settings) -> tuple[Any, Recipe]:
        """Return the model config and the recipe with the setting applied."""
        model = zoo.change(self.model, nest_settings(setting, "model"))
        recipe = self.recipe.with_fields(nest_settings(setting, "recipe"))
        return model, recipe.with_budget(self.epochs)

    @property
    def closed_form(self) -> bool:
        return MODELS[MODELS.name_of(self.model)].closed_form

    @property
    def architecture(self) -> str:
        return architecture(MODELS.dump(self.model))

    @property
    def cell(self) -> str | None:
        cell = getattr(self.model, "cell", None)
        if cell is None:
            return None
        return CELLS.name_of(cell)

    @property
    def data_facts(self) -> Config | None:
        if self.corpus.facts:
            return self.corpus.facts.as_json()
        return None

    @property
    def failure_loss(self) -> float:
        return 2 * math.log(len(self.corpus.vocabulary))  # twice the loss of a uniform guess

    def sizes(self) -> Mapping[str, int]:
        sizes = {}
        width = getattr(self.model, "width", None)
        if width is not None:
            sizes["width"] = width
        sizes["parameters"] = count_parameters(self.model, self.corpus.task)
        return sizes

    def check_on_cpu(self):
        check_precision(self.recipe.precision, CPU)

    @property
    def default_setting(self) -> Setting:
        return {path: _value_at(self.configs, path) for path in self.search_space}

    @property
    def configs(self) -> FieldsDict:
        """The fields of the model and of the recipe, those at their defaults too."""
        # A stored config leaves defaults out, but they can be searched.
        model = add_defaults(self.model, MODELS.dump(self.model))
        return {"model": model, "recipe": add_defaults(self.recipe, to_dict(self.recipe))}

    def seconds_per_epoch(self) -> float:
        with guest():
            model = zoo.build(self.model, self.corpus.task, seed=0)
            part = self.corpus.train.for_epoch(0)
            batches = epoch_batches(part.lengths, self.recipe.batch, seed=0, epoch=0)
            _step(model, part, batches[0])  # the first one compiles
            timed = batches[1 : 1 + STEPS]
            start = time.perf_counter()
            for rows in timed:
                _step(model, part, rows)
            seconds = time.perf_counter() - start
            return seconds / max(1, len(timed)) * len(batches)


def _step(model: LanguageModel, part: Sequences, rows: torch.Tensor):
    batch = gather_batch(part, rows)
    loss = -model.log_prob(*batch.inputs).sum()
    # A table of counts has none.
    if loss.requires_grad:
        loss.backward()


def resolve_row(study: Study, point: Point, corpus: Corpus, corpus_fields: Config) -> RowPoint:
    """Return a point of a row of the zoo."""
    _check_fields(point)
    fields = {f"model.{path}": value for path, value in point.fields.items()}
    # The point wins over the study.
    overrides = zoo.overlay(_common_model_fields(study, point), nest_settings(fields, "model"))
    model = zoo.config(point.row, **overrides)
    if study.parameters:
        model = fit_width(model, corpus.task, study.parameters)
    # A task counts right answers, for which a distribution is needed.
    if corpus.valid.scored is not None:
        zoo.build(model, corpus.task).require_next_token()
    recipe_fields = nest_settings(of_rows(study, study.fields), "recipe")
    recipe = named_recipe(study.recipe).with_fields(recipe_fields)
    recipe = recipe.with_budget(study.epochs)
    resolved = RowPoint("", point.label, {}, study.epochs, model, recipe, corpus, corpus_fields)
    search = point.search
    if search is None:
        search = of_rows(study, study.search)
    for path, bounds in search.items():
        # A count model has no recipe fields to tune.
        if path.startswith("recipe.") and _is_count_model(point):
            continue
        if bounds is None:
            bounds = _declared_range(resolved, path)
        resolved.search_space[path] = bounds
    _check_schedule(study, resolved.search_space)
    resolved.default_setting  # raises if a searched field does not exist  # noqa: B018
    _check_ranges(resolved, corpus)
    resolved.id = _point_id(resolved, study)
    return resolved


def _check_fields(point: Point):
    """Refuse fields of a point that are not those of its model."""
    for path in point.fields:
        section, _, field = path.partition(".")
        if section not in SECTIONS:
            continue
        advice = "set it for all: Study(fields={...})"
        if section == "model":
            advice = f"write {field!r}"
        raise UserError(f"{path!r}: the fields of a point are those of its model; {advice}")


def _point_id(point: RowPoint, study: Study) -> str:
    """Return a hash of all that decides the runs of a point, but for what is searched."""
    space = sorted(point.search_space.items())
    identity = {
        "model": MODELS.dump(point.model),
        "recipe": to_dict(point.recipe),
        "searched": {path: repr(bounds) for path, bounds in space},
        "fingerprint": point.corpus.fingerprint,
        "seed": study.seed,
    }
    for path, _ in space:  # the default of a searched field is not part of the id
        _remove_field(identity, path)
    if point.code:
        identity["user_code"] = point.code.hash
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


CHECK_SECONDS = 10.0
"""Time in which the models of a study are checked before a sweep: those of 2,000 points."""


def check_points(points: Collection[Trainable]) -> list[str]:
    """Find what does not learn, and what changes nothing; each point keeps its `doubts`."""
    rows = [point for point in points if isinstance(point, RowPoint)]
    known: dict[str, RowPoint] = {}
    doubts = []
    end = time.monotonic() + CHECK_SECONDS
    for number, point in enumerate(rows):
        # A sweep of many points must not wait for its checks.
        if time.monotonic() > end:
            left = len(rows) - number
            point.doubts = [f"{left:,} of {len(rows):,} points are not checked for dead parameters"]
            return doubts + point.doubts
        with contextlib.suppress(Exception):  # its runs fail, and say why
            point.doubts = list(_doubts(point, known))
        doubts += point.doubts
    return doubts


def _doubts(point: RowPoint, known: dict[str, RowPoint]) -> Iterator[str]:
    model = point.model
    task = point.corpus.task
    found = learned(model, task)
    if found.dead:
        total = count_parameters(model, task)
        dead = total - count_parameters(model, task, found.dead)
        names = ", ".join(sorted(found.dead))
        yield f"{point.display_label}: {dead:,} of {total:,} parameters do not learn: {names}"
    other = known.setdefault(found.function, point)
    # An alias, or the first point with this function.
    if other.model == model:
        return
    # Functions that agree on a short sequence may differ on a long one.
    whole = learned(model, task, task.length)
    if whole.function == learned(other.model, task, task.length).function:
        yield f"{point.display_label} computes the same as {other.display_label}"


def of_rows(study: Study, settings: Settings) -> FieldsDict:
    """Return the settings of rows of the zoo: all of them, if no point is a program."""
    if all(point.is_row for point in study.points):
        return dict(settings)
    of_sections = {}
    for path, value in settings.items():
        section, _, _ = path.partition(".")
        if section in SECTIONS:
            of_sections[path] = value
    return of_sections


def _common_model_fields(study: Study, point: Point) -> FieldsDict:
    """Return the study's model fields; among other models, a count model gets those it has."""
    common = nest_settings(of_rows(study, study.fields), "model")
    # Among neural models a field such as width is not meant for it.
    if not _is_count_model(point) or all(map(_is_count_model, study.points)):
        return common
    known = to_dict(zoo.config(point.row))
    return {name: value for name, value in common.items() if name in known}


def _is_count_model(point: Point) -> bool:
    if not point.is_row:
        return False
    model = zoo.row(point.row).model
    if model is None:
        return False
    return MODELS[model].closed_form


def _declared_range(point: RowPoint, path: str) -> Range:
    """Return the search range that the config class declares for a field."""
    root, _, rest = path.partition(".")
    config: Any = None
    if root in ("model", "recipe"):
        config = getattr(point, root)
    parents = rest.split(".")
    leaf = parents.pop()
    for parent in parents:
        config = getattr(config, parent, None)
    known = {}
    if config is not None:
        known = ranges(type(config))
    if leaf not in known:
        # If there is no such field, this says so.
        _value_at(point.configs, path)
        raise UserError(
            f"no search range is known for {path!r}; give one: --search-space {path}=LOW:HIGH[:log]"
        )
    return known[leaf]


def _check_ranges(point: RowPoint, corpus: Corpus):
    """Refuse a range whose ends, or a choice of which a value, a field does not accept.

    A value that only the default of another searched field contradicts is accepted.
    """
    tried = {}
    for path, bounds in point.search_space.items():
        if isinstance(bounds, Choice):
            values = bounds.values
        else:
            values = (bounds.low, bounds.high)
        tried[path] = [{path: value} for value in values]
    for path, settings in tried.items():
        # {} leaves the other field at its default.
        others = [[{}] + of_other for name, of_other in tried.items() if name != path]
        for setting in settings:
            refusal = None
            for combination in itertools.islice(itertools.product(*others), MOST_COMBINATIONS):
                changed = dict(setting)
                for other in combination:
                    changed |= other
                try:
                    zoo.check_size(point.with_setting(changed)[0], corpus.task)
                    break
                except UserError as error:
                    if refusal is None:
                        refusal = f"{setting[path]!r} is not accepted: {error}"
            else:
                raise UserError(f"--search-space {path}: {refusal}")


def _check_schedule(study: Study, space: Collection[str]):
    """Refuse to stop runs early that are at different places of their learning rate schedules."""
    searched = SCHEDULE & set(space)
    if searched and study.pruner != "none":
        raise UserError(
            f"{', '.join(sorted(searched))} is searched, and losses before the end of different "
            "schedules cannot be compared; add --pruner none"
        )


def _value_at(tree: Fields, path: str) -> Any:
    known = dict(fields_of(tree))
    if path not in known:
        raise UserError(f"no field {path!r} to search{near(path, known)}")
    return known[path]


def _remove_field(tree: FieldsDict, path: str):
    parents = path.split(".")
    leaf = parents.pop()
    for parent in parents:
        tree = _by_number(tree)[parent]
    # A default is left out already.
    tree.pop(leaf, None)


def fields_of(fields: Fields, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of every field, nested fields too."""
    for key, value in fields.items():
        path = f"{prefix}{key}"
        yield path, value
        inside = _by_number(value)
        if isinstance(inside, Mapping):
            yield from fields_of(inside, f"{path}.")


def _by_number(value: Any) -> Any:
    """Return a list of parts, such as layers, as a mapping by number, from 1."""
    if isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
        # As the command line writes them: model.cell.layers.1.width.
        return {str(number): part for number, part in enumerate(value, 1)}
    return value
