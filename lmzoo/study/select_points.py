"""The option `--points`: labels as the study writes them, or with the names of cuts."""

import difflib

from lmzoo import zoo
from lmzoo.config import to_dict
from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from lmzoo.labels import display_label
from lmzoo.study.baselines import baselines
from lmzoo.study.study import Point, Study


def select_labels(study: Study, corpus: Corpus, text: str) -> set[str]:
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
            near = {
                label
                for prefix in prefixes.values()
                for label in difflib.get_close_matches(prefix, labels)
            }
            hint = f"near: {', '.join(sorted(near))}" if near else f"known: {', '.join(labels)}"
            raise UserError(f"--points: no point {prefixes[1]!r}; {hint}")
        selected.add(labels[prefixes[length]])
        parts = parts[length:]
    return selected


def _label_of_row(point: Point) -> str:
    """Return the label with the names of its cuts; the cell is the one of the point's row."""
    row = zoo.row(point.row)
    return display_label(point.label, row.model and to_dict(zoo.config(point.row)).get("cell"))
