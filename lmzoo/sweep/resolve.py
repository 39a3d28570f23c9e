"""From a study's words to runs: configs built, equal points collapsed, identities known.

Two points that are the same function (`zoo.md` 2.2, 2.3) have equal configs, so they
become one point with an alias and are never trained twice.
"""

import difflib
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from lmzoo import zoo
from lmzoo.command_line import nested
from lmzoo.config import from_dict, to_dict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import CORPORA, Corpus
from lmzoo.data.open import read_spec
from lmzoo.errors import UserError
from lmzoo.search_space import Range, ranges
from lmzoo.sweep.baselines import baselines
from lmzoo.sweep.parameter_budget import fit_width
from lmzoo.sweep.study import Point, Settings, Study
from lmzoo.train import run
from lmzoo.train.recipe import Recipe, named_recipe


@dataclass
class ResolvedPoint:
    """A point whose every unsearched field is decided."""

    id: str
    label: str
    model: Any
    recipe: Recipe
    corpus_config: Mapping[str, Any]
    space: dict[str, Range]
    aliases: list[str] = field(default_factory=list)
    floor: bool = False
    """Whether it stands in every table of its corpus, asked for or not."""

    @property
    def labels(self) -> set[str]:
        """Every name that the study has for it."""
        return {self.label, *self.aliases}

    def configured(self, setting: Settings, seed: int, corpus: Corpus) -> dict[str, Any]:
        """What decides a run of this point under a setting of its searched fields."""
        model, recipe = self.with_setting(setting)
        return run.identity_config(model, recipe, corpus, self.corpus_config, seed)

    def with_setting(self, setting: Settings) -> tuple[Any, Recipe]:
        """Model config and recipe with the setting laid over them."""
        model = _laid(MODELS.write(self.model), setting, "model")
        recipe = _laid(to_dict(self.recipe), setting, "recipe")
        return MODELS.read(model), from_dict(Recipe, recipe)

    @property
    def default(self) -> dict[str, Any]:
        """The values that the searched fields have unsearched."""
        have = {"model": MODELS.write(self.model), "recipe": to_dict(self.recipe)}
        return {path: _reach(have, path) for path in self.space}


def corpus_config(study: Study, data_fields: Settings) -> dict[str, Any]:
    """The study's corpus with its options, as plain data.

    Raises:
        UserError: no such corpus, or an option is refused.
    """
    chosen = {**read_spec(study.corpus), **nested(data_fields, "corpus")}
    return CORPORA.write(CORPORA.read(chosen))


def resolve(
    study: Study,
    corpus: Corpus,
    corpus_fields: Mapping[str, Any],
    needed: Collection[str] | None = None,
) -> list[ResolvedPoint]:
    """All points of the study and its floors, each function once, in the study's order.

    A point whose label is not `needed` is left out where it refuses a field that all were given.

    Raises:
        UserError: an unknown row or field, a value refused, or a study with no points.
    """
    if study.parameters and "model.width" in study.fields:
        raise UserError(
            f"model.width={study.fields['model.width']} contradicts the budget of "
            f"{study.parameters:,} parameters, which decides widths; add --parameters 0"
        )
    points: dict[str, ResolvedPoint] = {}
    refused: UserError | None = None
    for point in study.points:
        try:
            found = _resolve(study, point, corpus, corpus_fields)
        except UserError as error:
            refused = UserError(f"point {point.label!r}: {error}")
            if needed is None or point.label in needed:
                raise refused from None
            continue
        if found.id in points:
            points[found.id].aliases.append(point.label)
        else:
            points[found.id] = found
    if not points and refused:
        raise refused
    if not points:
        raise UserError(f"study {study.name} has no points to compare")
    for point in baselines(study.points, corpus):
        found = _resolve(study, point, corpus, corpus_fields)
        points.setdefault(found.id, found).floor = True
    return list(points.values())


def named(study: Study, corpus: Corpus, text: str) -> set[str]:
    """The labels that `LABEL,LABEL` names, those of the floors with them; all, of an empty text.

    Labels have commas of their own, so the longest label that fits is taken.

    Raises:
        UserError: there is no such point; it names the nearest.
    """
    always = {point.label for point in baselines(study.points, corpus)}
    labels = {point.label: None for point in study.points} | dict.fromkeys(always)
    if not text.strip():
        return set(labels)
    pieces, chosen = text.split(","), always
    while pieces:
        starts = {n: ",".join(pieces[:n]).strip() for n in range(len(pieces), 0, -1)}
        size = next((n for n, start in starts.items() if start in labels), None)
        if size is None:
            near = {
                label
                for start in starts.values()
                for label in difflib.get_close_matches(start, labels)
            }
            hint = f"near: {', '.join(sorted(near))}" if near else f"known: {', '.join(labels)}"
            raise UserError(f"--points: no point {starts[1]!r}; {hint}")
        chosen.add(starts[size])
        pieces = pieces[size:]
    return chosen


def _resolve(
    study: Study, wanted: Point, corpus: Corpus, corpus_fields: Mapping[str, Any]
) -> ResolvedPoint:
    own = nested({f"model.{path}": value for path, value in wanted.fields.items()}, "model")
    model = zoo.config(wanted.row, **zoo.overlay(_common(study, wanted), own))
    if study.parameters:
        model = fit_width(model, corpus.task, study.parameters)
    recipe = from_dict(
        Recipe, {**to_dict(named_recipe(study.recipe)), **nested(study.fields, "recipe")}
    )
    point = ResolvedPoint("", wanted.label, model, recipe, corpus_fields, {})
    search = study.search if wanted.search is None else wanted.search
    if _counts(wanted):  # counting has no recipe to tune
        search = {path: where for path, where in search.items() if not path.startswith("recipe.")}
    point.space = {path: where or _range_of(point, path) for path, where in search.items()}
    point.default  # every searched field exists  # noqa: B018
    decisive = {
        "model": MODELS.write(model),
        "recipe": to_dict(recipe),
        "searched": {path: repr(where) for path, where in sorted(point.space.items())},
        "fingerprint": corpus.fingerprint,
        "seed": study.seed,
    }
    for path in point.space:  # a searched field's default does not tell points apart
        _forget(decisive, path)
    text = json.dumps(decisive, sort_keys=True)
    point.id = hashlib.sha256(text.encode()).hexdigest()[:10]
    return point


def _common(study: Study, wanted: Point) -> dict[str, Any]:
    """The study's model fields; a count model beside others takes only those it has."""
    common = nested(study.fields, "model")
    if not _counts(wanted) or all(map(_counts, study.points)):
        return common
    known = to_dict(zoo.config(wanted.row))
    return {name: value for name, value in common.items() if name in known}


def _counts(point: Point) -> bool:
    model = zoo.row(point.row).model
    return model is not None and MODELS[model].closed_form


def _laid(base: Mapping[str, Any], setting: Settings, root: str) -> dict[str, Any]:
    return zoo.overlay(base, nested(setting, root))


def _range_of(point: ResolvedPoint, path: str) -> Range:
    """The range that stands beside the field's default."""
    head, _, rest = path.partition(".")
    holder: Any = {"model": point.model, "recipe": point.recipe}.get(head)
    *parents, leaf = rest.split(".")
    for parent in parents:
        holder = getattr(holder, parent, None)
    known = ranges(type(holder)) if holder is not None else {}
    if leaf not in known:
        raise UserError(
            f"no search range is known for {path!r}; give one: --search-space {path}=LOW:HIGH[:log]"
        )
    return known[leaf]


def _reach(tree: Mapping[str, Any], path: str) -> Any:
    value: Any = tree
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UserError(f"there is no field {path!r} to search")
        value = value[part]
    return value


def _forget(tree: dict[str, Any], path: str) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        tree = tree[parent]
    tree.pop(leaf, None)
