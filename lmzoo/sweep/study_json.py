"""What `study.json` says: the question, what was asked, the points and what was chosen.

`asked` holds what the script and its options decided, so that the same study can be asked
for again; `search` of a point is what was searched for it, which points may decide
themselves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lmzoo.cells.base import CELLS
from lmzoo.search_space import Choice, Range
from lmzoo.sweep.point_planner import PointPlanner
from lmzoo.sweep.study import Study


def study_json(study: Study, points: Sequence[PointPlanner]) -> dict[str, Any]:
    """The study as it stands, as plain data."""
    spaces = [_search(agenda.point.space) for agenda in points]
    return {
        "name": study.name,
        "question": study.question,
        "reference": _reference(study, points),
        "budget": {"epochs": study.epochs, "samples": study.samples, "seeds": study.seeds},
        "asked": {
            "corpus": study.corpus,
            "recipe": study.recipe,
            "seed": study.seed,
            "parameters": study.parameters,
            "fields": dict(study.fields),
            "search": _search(study.search),
            "off": list(study.off),
        },
        "search": {path: where for space in spaces for path, where in space.items()},
        "points": [
            {
                "id": agenda.point.id,
                "label": agenda.point.label,
                "aliases": agenda.point.aliases,
                "search": space,
                "cell": _cell(agenda),
            }
            for agenda, space in zip(points, spaces, strict=True)
        ],
        "left_out": left_out(study, points),
        "chosen": {
            agenda.point.id: agenda.chosen_entry() for agenda in points if agenda.chosen is not None
        },
    }


def left_out(study: Study, points: Sequence[PointPlanner]) -> list[str]:
    """Labels of the points that lack a field which all were given, and so cannot be asked for."""
    known = {label for agenda in points for label in agenda.point.labels}
    return [point.label for point in study.points if point.label not in known]


def _reference(study: Study, points: Sequence[PointPlanner]) -> str:
    for agenda in points:
        if study.reference in (agenda.point.label, *agenda.point.aliases):
            return agenda.point.id
    return points[0].point.id


def _cell(agenda: PointPlanner) -> str | None:
    """The kind of cell that the point's model has, which tells whose mutant it is."""
    cell = getattr(agenda.point.model, "cell", None)
    return None if cell is None else CELLS.name_of(cell)


def _search(space: Mapping[str, Range | None]) -> dict[str, Any]:
    return {path: _plain(where) for path, where in space.items()}


def _plain(where: Range | None) -> dict[str, Any] | None:
    """A range as plain data; None is the one beside the field's default."""
    if where is None:
        return None
    if isinstance(where, Choice):
        return {"values": list(where.values)}
    return {"low": where.low, "high": where.high, "log": where.log}
