"""The content of `study.json`: the question, the options, the points and their best settings.

asked       what the script and its options set: field -> value
options     the same as words of the command line, which run the same study again
given       those of them that the user typed
looks       numbers of seeds at which verdicts are given, each with the error spent there, and
the seeds of the reference
points      each point with its search space, which may differ from the study's, and whether the
study added it as a baseline
chosen      point id -> its best setting and confirm runs
data        what reading the user's text gave and lost, with `warnings`; else absent
left_out    points that do not accept a field that the study sets for all points
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lmzoo.base.command_line import setting_text
from lmzoo.base.search_space import Range, range_json, range_text
from lmzoo.lab.statistics.compared import Look
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.study.study import Study, options
from lmzoo.lab.study.trainable import Trainable, reference_id


def study_json(
    study: Study, planners: Sequence[PointPlanner], looks: Sequence[Look]
) -> dict[str, Any]:
    """Return the content of `study.json` at this moment."""
    points = [planner.point for planner in planners]
    search = {}
    listed = []
    labels = set[str]()
    chosen = {}
    for planner in planners:
        point = planner.point
        space = _plain(point.search_space)
        search |= space
        listed.append(_point_json(point, space))
        # An alias is not left out: another point stands for it.
        labels |= point.labels
        if planner.best_setting is not None:
            chosen[point.id] = planner.best_setting_json()
    budget = {name: getattr(study, name) for name in ("epochs", "samples", "seeds")}
    data = _data_facts(points)
    content = {
        "name": study.name,
        "question": study.question,
        "script": list(study.script),
        "given": list(study.given),
        "reference": reference_id(study, points),
        "budget": {**budget, "reference_seeds": looks[0].of_reference},
        "margin": study.margin,
        # Six digits: the last ones of a sum of errors depend on the order of the additions.
        "looks": [[look.seeds, float(f"{look.error:.6g}"), look.of_reference] for look in looks],
        "asked": {name: _plain(getattr(study, name)) for name in options(study)},
        "options": option_words(study),
        "search": search,
        "points": listed,
    }
    if data:
        content["data"] = data
    content["left_out"] = [point.label for point in study.points if point.label not in labels]
    content["chosen"] = chosen
    return content


def _point_json(point: Trainable, space: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": point.id,
        "label": point.label,
        "aliases": point.aliases,
        "baseline": point.baseline,
        "search": space,
        "cell": point.cell,
    }


def _data_facts(points: Sequence[Trainable]) -> dict[str, Any]:
    """Return what the first point knows of the data, with the doubts of all points."""
    facts = dict[str, Any]()
    doubts = list[str]()
    for point in points:
        doubts += point.doubts
        if not facts:
            facts = dict(point.data_facts or {})
    if doubts:
        facts["warnings"] = [*facts.get("warnings", ()), *doubts]
    return facts


def option_words(study: Study) -> list[str]:
    """Return the options of the command line that set all fields to the study's values."""
    words: list[str] = []
    for name, option in options(study).items():
        value = getattr(study, name)
        if option.switch:
            if value:
                words += [option.switch, option.flag, str(value)]
        elif isinstance(value, Mapping):
            for path, of_path in value.items():
                if name != "search":
                    words += [option.flag, setting_text(path, of_path)]
                elif of_path is not None:  # None is the default range of the field
                    words += [option.flag, range_text(path, range_json(of_path))]
        # Of the fields that are options, only `off`.
        elif isinstance(value, tuple):
            for path in value:
                words += [option.flag, f"{path}=off"]
        elif isinstance(value, str | int | float):  # the script makes other objects
            words += [option.flag, str(value)]
    return words


def _plain(value: Any) -> Any:
    """Return the value of an option as JSON, and an object of the script as its class's name."""
    if isinstance(value, Range):
        return range_json(value)
    if isinstance(value, Mapping):
        return {path: _plain(of_path) for path, of_path in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | float | None):
        return value
    # Enough to see that it was another one.
    return type(value).__name__
