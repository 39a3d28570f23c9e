"""The content of `study.json`: the question, the options, the points and their best settings.

asked       what the script and its options set, enough to run the same study again
points      each point with its search space, which may differ from the study's
chosen      point id -> its best setting and confirm runs
left_out    points that do not accept a field that the study sets for all points
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lmzoo.cells.base import CELLS
from lmzoo.search_space import Choice, Range
from lmzoo.study.point_planner import PointPlanner
from lmzoo.study.resolve import reference_id
from lmzoo.study.study import Study
from lmzoo.study.until_decided import schedule


def study_json(study: Study, planners: Sequence[PointPlanner]) -> dict[str, Any]:
    """Return the content of `study.json` at this moment."""
    points = [planner.point for planner in planners]
    spaces = [_search_json(point.search_space) for point in points]
    labels = {label for point in points for label in point.labels}
    return {
        "name": study.name,
        "question": study.question,
        "script": list(study.script),
        "reference": reference_id(study, points),
        "budget": {"epochs": study.epochs, "samples": study.samples, "seeds": study.seeds},
        "margin": study.margin,
        "looks": list(schedule(study)),
        "asked": {
            "corpus": study.corpus,
            "recipe": study.recipe,
            "seed": study.seed,
            "max_seeds": study.max_seeds,
            "parameters": study.parameters,
            "fields": dict(study.fields),
            "search": _search_json(study.search),
            "off": list(study.off),
            "parallel": study.parallel,
            "sampler": _name(study.sampler),
            "pruner": _name(study.pruner),
        },
        "search": {path: bounds for space in spaces for path, bounds in space.items()},
        "points": [
            {
                "id": point.id,
                "label": point.label,
                "aliases": point.aliases,
                "search": space,
                "cell": _cell_name(point.model),
            }
            for point, space in zip(points, spaces, strict=True)
        ],
        "left_out": [point.label for point in study.points if point.label not in labels],
        "chosen": {
            planner.point.id: planner.best_setting_json()
            for planner in planners
            if planner.best_setting is not None
        },
    }


def _name(choice: Any) -> str:
    """Return the name of a sampler or pruner; of an object, its class."""
    return choice if isinstance(choice, str) else type(choice).__name__


def _cell_name(model: Any) -> str | None:
    """Return the registry name of the model's cell; None if it has no cell."""
    cell = getattr(model, "cell", None)
    return None if cell is None else CELLS.name_of(cell)


def _search_json(search_space: Mapping[str, Range | None]) -> dict[str, Any]:
    return {path: _range_json(bounds) for path, bounds in search_space.items()}


def _range_json(bounds: Range | None) -> dict[str, Any] | None:
    """Return a range as plain data; None is the range declared with the field."""
    if bounds is None:
        return None
    if isinstance(bounds, Choice):
        return {"values": list(bounds.values)}
    return {"low": bounds.low, "high": bounds.high, "log": bounds.log}
