"""Resolves the points of a study: builds configs, merges equal points, computes point ids.

Two points with equal configs are the same function. They become one point with an alias, which is
trained once.
"""

import hashlib
import itertools
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmzoo import zoo
from lmzoo.command_line import nest_settings
from lmzoo.config import add_defaults, from_dict, to_dict
from lmzoo.contract import MODELS
from lmzoo.data import corpus as corpora
from lmzoo.data.corpus import Corpus
from lmzoo.describe.labels import display_label
from lmzoo.errors import UserError, near
from lmzoo.own_parts.source import UserCode
from lmzoo.search_space import Choice, Range, ranges
from lmzoo.study.common_settings import paths
from lmzoo.study.parameter_budget import baselines, fit_width
from lmzoo.study.study import Point, Settings, Study
from lmzoo.train.carried import check_carry
from lmzoo.train.recipe import Recipe, named_recipe
from lmzoo.train.run_config import identity_config, parts_code


@dataclass
class ResolvedPoint:
    """A point with its model, recipe and search space."""

    id: str
    label: str
    model: Any
    recipe: Recipe
    corpus_config: Mapping[str, Any]
    search_space: dict[str, Range]
    epochs: int
    """Epochs of the study."""
    aliases: list[str] = field(default_factory=list)
    """Labels of other points with the same configs."""
    baseline: bool = False
    """Whether the point is a baseline, which is trained even if it is not selected."""

    @property
    def display_label(self) -> str:
        """The label with the names of its cuts; see `lmzoo/describe/labels.py`."""
        return self._shown(self.label)

    @property
    def display_aliases(self) -> list[str]:
        """The aliases with the names of their cuts."""
        return [self._shown(alias) for alias in self.aliases]

    @property
    def labels(self) -> set[str]:
        """The label and all aliases."""
        return {self.label, *self.aliases}

    def run_config(self, setting: Settings, seed: int, corpus: Corpus) -> dict[str, Any]:
        """Return the identity config of the run with this setting and seed."""
        model, recipe = self.with_setting(setting)
        return identity_config(model, recipe, corpus, self.corpus_config, seed)

    def _shown(self, label: str) -> str:
        return display_label(label, MODELS.dump(self.model).get("cell"))

    @property
    def code(self) -> UserCode:
        """The code of the point's parts that is outside the package."""
        return parts_code(self.model, self.corpus_config)

    def with_setting(self, setting: Settings) -> tuple[Any, Recipe]:
        """Return the model config and the recipe with the setting applied."""
        model = zoo.change(self.model, nest_settings(setting, "model"))
        recipe = self.recipe.with_fields(nest_settings(setting, "recipe"))
        return model, recipe.with_budget(self.epochs)

    @property
    def closed_form(self) -> bool:
        """Whether the model is estimated in one pass, as counts are."""
        return MODELS[MODELS.name_of(self.model)].closed_form

    @property
    def default_setting(self) -> dict[str, Any]:
        """The values of the searched fields before the search."""
        return {path: _value_at(self.configs, path) for path in self.search_space}

    @property
    def configs(self) -> dict[str, Any]:
        """The fields of the model and of the recipe, those at their defaults too."""
        model = add_defaults(self.model, MODELS.dump(self.model))
        return {"model": model, "recipe": add_defaults(self.recipe, to_dict(self.recipe))}


def corpus_config(study: Study, data_fields: Settings) -> dict[str, Any]:
    """Return the config of the study's corpus.

    Raises:
        UserError: The corpus is unknown, or an option is invalid.
    """
    return corpora.corpus_config(study.corpus, nest_settings(data_fields, "corpus"))


def resolve(
    study: Study,
    corpus: Corpus,
    corpus_fields: Mapping[str, Any],
    needed: Collection[str] | None = None,
) -> list[ResolvedPoint]:
    """Return the study's points, in its order and with equal points merged, and the baselines.

    A point whose label is not in `needed` is left out if it does not accept the fields that the
    study sets for all points; None needs all points.

    Raises:
        UserError: A row, a field or a value is invalid, or the study has no points.
    """
    study.check()
    if study.parameters and "model.width" in study.fields:
        raise UserError(
            f"model.width={study.fields['model.width']} contradicts the budget of "
            f"{study.parameters:,} parameters, which sets the widths; add --parameters 0"
        )
    points: dict[str, ResolvedPoint] = {}
    refusal: UserError | None = None
    for point in study.points:
        try:
            resolved = _resolve(study, point, corpus, corpus_fields)
        except UserError as error:
            refusal = UserError(f"point {point.label!r}: {error}")
            if needed is None or point.label in needed:
                raise refusal from None
            continue
        if resolved.id in points:
            points[resolved.id].aliases.append(point.label)
        else:
            points[resolved.id] = resolved
    if refusal and not points:
        raise refusal
    labels = {label for point in points.values() for label in point.labels}
    for point in baselines(study.points, corpus):
        resolved = _resolve(study, point, corpus, corpus_fields)
        same = points.setdefault(resolved.id, resolved)
        # A point that the study asks is compared, also if it equals a baseline.
        same.baseline = same is resolved or not (needed is None or same.labels & {*needed})
        if point.label in labels - same.labels:
            raise UserError(f"point {point.label!r} has the label of a baseline; give it another")
    return list(points.values())


def reference_id(study: Study, points: Sequence[ResolvedPoint]) -> str:
    """Return the id of the point that the others are compared with.

    Raises:
        UserError: The study has no such point; the message names similar ones.
    """
    if not study.reference:
        return points[0].id
    for point in points:
        if study.reference in point.labels | {point.display_label, *point.display_aliases}:
            return point.id
    labels = [label for point in points for label in (point.label, *point.aliases)]
    raise UserError(f"reference: no point {study.reference!r}{near(study.reference, labels)}")


def check_selection(study: Study, points: Sequence[ResolvedPoint], needed: Collection[str]) -> None:
    """Check that the reference is among the points to train.

    Raises:
        UserError: The reference is unknown or left out.
    """
    wanted = reference_id(study, points)
    reference = next(point for point in points if point.id == wanted)
    if not reference.baseline and not reference.labels & {*needed}:
        raise UserError(
            f"--points leaves out the reference {reference.label!r}, with which the points are "
            f"compared; add it: --points {shlex.quote(reference.label)},..."
        )


def _resolve(
    study: Study, point: Point, corpus: Corpus, corpus_fields: Mapping[str, Any]
) -> ResolvedPoint:
    fields = {f"model.{path}": value for path, value in point.fields.items()}
    overrides = zoo.overlay(_common_model_fields(study, point), nest_settings(fields, "model"))
    model = zoo.config(point.row, **overrides)
    if study.parameters:
        model = fit_width(model, corpus.task, study.parameters)
    if corpus.valid.scored is not None:
        zoo.build(model, corpus.task).require_next_token()
    recipe_fields = nest_settings(study.fields, "recipe")
    recipe = from_dict(Recipe, {**to_dict(named_recipe(study.recipe)), **recipe_fields})
    recipe = recipe.with_budget(study.epochs)
    if recipe.carry_state:
        check_carry(zoo.build(model, corpus.task), recipe, corpus)
    resolved = ResolvedPoint("", point.label, model, recipe, corpus_fields, {}, study.epochs)
    search = study.search if point.search is None else point.search
    if _is_count_model(point):  # a count model has no recipe fields to tune
        search = {path: bounds for path, bounds in search.items() if not path.startswith("recipe.")}
    resolved.search_space = {
        path: bounds or _declared_range(resolved, path) for path, bounds in search.items()
    }
    _check_schedule(study, resolved.search_space)
    resolved.default_setting  # raises if a searched field does not exist  # noqa: B018
    _check_ranges(resolved, corpus)
    identity = {
        "model": MODELS.dump(model),
        "recipe": to_dict(recipe),
        "searched": {path: repr(bounds) for path, bounds in sorted(resolved.search_space.items())},
        "fingerprint": corpus.fingerprint,
        "seed": study.seed,
    }
    for path in resolved.search_space:  # the default of a searched field is not part of the id
        _remove_field(identity, path)
    if resolved.code:
        identity["user_code"] = resolved.code.hash
    text = json.dumps(identity, sort_keys=True)
    resolved.id = hashlib.sha256(text.encode()).hexdigest()[:10]
    return resolved


def _common_model_fields(study: Study, point: Point) -> dict[str, Any]:
    """Return the study's model fields; among other models, a count model gets those it has."""
    common = nest_settings(study.fields, "model")
    if not _is_count_model(point) or all(map(_is_count_model, study.points)):
        return common
    known = to_dict(zoo.config(point.row))
    return {name: value for name, value in common.items() if name in known}


def _is_count_model(point: Point) -> bool:
    model = zoo.row(point.row).model
    return model is not None and MODELS[model].closed_form


def _declared_range(point: ResolvedPoint, path: str) -> Range:
    """Return the search range that the config class declares for a field."""
    root, _, rest = path.partition(".")
    config: Any = {"model": point.model, "recipe": point.recipe}.get(root)
    *parents, leaf = rest.split(".")
    for parent in parents:
        config = getattr(config, parent, None)
    known = ranges(type(config)) if config is not None else {}
    if leaf not in known:
        _value_at(point.configs, path)
        raise UserError(
            f"no search range is known for {path!r}; give one: --search-space {path}=LOW:HIGH[:log]"
        )
    return known[leaf]


def _check_ranges(point: ResolvedPoint, corpus: Corpus) -> None:
    """Refuse a range whose ends, or a choice of which a value, a field does not accept.

    A value that only the default of another searched field contradicts is accepted.
    """
    tried = {}
    for path, bounds in point.search_space.items():
        values = bounds.values if isinstance(bounds, Choice) else (bounds.low, bounds.high)
        tried[path] = [{path: value} for value in values]
    for path, settings in tried.items():
        rest = [[{}, *other] for name, other in tried.items() if name != path]
        for setting in settings:
            refusal = None
            for others in itertools.islice(itertools.product(*rest), 1000):
                try:
                    changed = {k: v for part in (setting, *others) for k, v in part.items()}
                    zoo.check_size(point.with_setting(changed)[0], corpus.task)
                    break
                except UserError as error:
                    refusal = refusal or error
            else:
                value = setting[path]
                raise UserError(f"--search-space {path}: {value!r} is not accepted: {refusal}")


def _check_schedule(study: Study, space: Collection[str]) -> None:
    """Refuse to stop runs early that are at different places of their learning rate schedules."""
    searched = {"recipe.schedule", "recipe.schedule_epochs", "recipe.final_lr"} & set(space)
    if searched and study.pruner != "none":
        raise UserError(
            f"{', '.join(sorted(searched))} is searched, and losses before the end of different "
            "schedules cannot be compared; add --pruner none"
        )


def _value_at(tree: Mapping[str, Any], path: str) -> Any:
    value: Any = tree
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UserError(f"no field {path!r} to search{near(path, paths(tree))}")
        value = value[part]
    return value


def _remove_field(tree: dict[str, Any], path: str) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        tree = tree[parent]
    tree.pop(leaf, None)
