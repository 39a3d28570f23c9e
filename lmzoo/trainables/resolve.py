"""Resolves the points of a study: builds configs, merges equal points, computes point ids.

Two points with equal configs are the same function. They become one point with an alias, which is
trained once.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmzoo.base.command_line import nest_settings
from lmzoo.base.errors import UserError
from lmzoo.data import corpus as corpora
from lmzoo.data.corpus import Corpus
from lmzoo.data.description import describe_data
from lmzoo.lab.study.study import Point, Settings, Study
from lmzoo.lab.study.trainable import Trainable
from lmzoo.train.recipe import PUBLISHED
from lmzoo.trainables.parameter_budget import baselines
from lmzoo.trainables.program_points import of_rows, resolve_program
from lmzoo.trainables.rows import resolve_row


@dataclass(frozen=True)
class Data:
    """The corpus of a study; None if no point trains a row of the zoo."""

    fields: dict[str, Any] | None
    """Its config."""
    corpus: Corpus | None
    lines: list[str]
    """What reading a text of the user gave and lost."""

    @property
    def source(self) -> str:
        """What the data are, in a line."""
        if self.corpus is None:
            return "data: those of the functions and commands"
        return f"{self.corpus.name}: {self.corpus.source}"


def open_data(study: Study, data_dir: Path | None = None) -> Data:
    """Open the corpus of a study, if one of its points trains a row of the zoo.

    Raises:
        UserError: The corpus is unknown, an option is invalid, or the data cannot be read.
    """
    if not any(point.is_row for point in study.points):
        return Data(None, None, [])
    fields = corpus_config(study, study.fields)
    corpus = corpora.open_corpus(fields, data_dir)
    return Data(fields, corpus, describe_data(corpus))


def corpus_config(study: Study, data_fields: Settings) -> dict[str, Any]:
    """Return the config of the study's corpus.

    Raises:
        UserError: The corpus is unknown, or an option is invalid.
    """
    own = nest_settings(of_rows(study, data_fields), "corpus")
    fields = {**PUBLISHED.get(study.recipe, {}).get("corpus", {}), **own}
    return corpora.corpus_config(study.corpus, fields)


def resolve(
    study: Study,
    corpus: Corpus | None,
    corpus_fields: Mapping[str, Any] | None,
    needed: Collection[str] | None = None,
) -> list[Trainable]:
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
    points: dict[str, Trainable] = {}
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


def _resolve(
    study: Study, point: Point, corpus: Corpus | None, corpus_fields: Mapping[str, Any] | None
) -> Trainable:
    if not point.is_row:
        return resolve_program(study, point, corpus, corpus_fields)
    assert corpus is not None
    assert corpus_fields is not None
    return resolve_row(study, point, corpus, corpus_fields)
