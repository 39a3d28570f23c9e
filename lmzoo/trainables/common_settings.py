"""Refuse settings for all points that change what the points are about.

The option `--points`: labels as the study writes them, or with the names of cuts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.base.errors import UserError, near
from lmzoo.data.corpus import Corpus
from lmzoo.lab.labels import display_label
from lmzoo.lab.study.study import Point, Study
from lmzoo.trainables.parameter_budget import baselines


def check_settings(study: Study, settings: Mapping[str, Any]) -> None:
    """Check the fields of `--set`, which apply to all points, against what the points compare.

    Raises:
        UserError: A point sets the field itself, or the rows of the points differ in it.
    """
    for path in settings:
        section, _, field = path.partition(".")
        if section == "model":
            rows = [point for point in study.points if point.is_row]
            own = [p.label for p in rows if any(_overlap(field, f) for f in p.fields)]
            own += [] if own else _points_of_rows(rows, field)
        else:
            own = [p.label for p in study.points if not p.is_row and path in p.fields]
        if own:
            labels = ", ".join([*map(repr, own)][:3]) + (", ..." if len(own) > 3 else "")
            raise UserError(
                f"--set {path}: the study compares points that set it themselves ({labels}); "
                "drop the option, or write a study of your own"
            )


def _points_of_rows(points: Sequence[Point], field: str) -> list[str]:
    """Return the points whose rows set the field, if the rows differ in it."""
    rows = {point.row: zoo.row(point.row) for point in points}
    values = [
        _value_at(to_dict(zoo.config(name)), field)
        for name, row in rows.items()
        if row.model is not None
    ]
    if all(value == values[0] for value in values):
        return []
    setting = {n for n, row in rows.items() if any(_inside(f, field) for f in paths(row.fields))}
    return [point.label for point in points if point.row in setting]


def paths(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the path of every field, nested fields too."""
    for key, value in fields.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from paths(value, f"{prefix}{key}.")


def _value_at(tree: Any, path: str) -> Any:
    """Return the value of a field, or None if there is no such field."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def _inside(path: str, other: str) -> bool:
    """Whether `path` is `other` or a field of it."""
    return f"{path}.".startswith(f"{other}.")


def _overlap(path: str, other: str) -> bool:
    return _inside(path, other) or _inside(other, path)


def select_labels(study: Study, corpus: Corpus | None, text: str) -> set[str]:
    """Return the labels in `LABEL,LABEL` and those of the baselines; all labels if it is empty.

    Labels with the names of cuts are known too. A label may contain commas: the longest known label
    is taken first.

    Raises:
        UserError: A label is unknown; the message names similar labels.
    """
    always = {point.label for point in baselines(study.points, corpus)}
    labels = {point.label: point.label for point in study.points} | {a: a for a in always}
    if not text.strip():
        return set(labels)
    labels = {_label_of_row(point): point.label for point in study.points} | labels
    parts, selected = text.split(","), always
    while parts:
        prefixes = {n: ",".join(parts[:n]).strip() for n in range(len(parts), 0, -1)}
        length = next((n for n, prefix in prefixes.items() if prefix in labels), None)
        if length is None:
            raise UserError(f"--points: no point {prefixes[1]!r}{near(prefixes[1], labels)}")
        selected.add(labels[prefixes[length]])
        parts = parts[length:]
    return selected


def _label_of_row(point: Point) -> str:
    """Return the label with the names of its cuts; the cell is the one of the point's row."""
    if not point.is_row:
        return point.label
    row = zoo.row(point.row)
    return display_label(point.label, row.model and to_dict(zoo.config(point.row)).get("cell"))
