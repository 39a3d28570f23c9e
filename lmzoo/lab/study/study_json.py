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
from lmzoo.lab.study.trainable import reference_id


def study_json(
    study: Study, planners: Sequence[PointPlanner], looks: Sequence[Look]
) -> dict[str, Any]:
    """Return the content of `study.json` at this moment."""
    points = [planner.point for planner in planners]
    spaces = [_plain(point.search_space) for point in points]
    labels, own = {x for p in points for x in p.labels}, ("id", "label", "aliases", "baseline")
    facts = next((point.data_facts for point in points if point.data_facts), None)
    if doubts := [line for point in points for line in point.doubts]:
        facts = {**(facts or {}), "warnings": [*(facts or {}).get("warnings", ()), *doubts]}
    return {
        "name": study.name,
        "question": study.question,
        "script": list(study.script),
        "given": list(study.given),
        "reference": reference_id(study, points),
        "budget": {
            **{name: getattr(study, name) for name in ("epochs", "samples", "seeds")},
            "reference_seeds": looks[0].of_reference,
        },
        "margin": study.margin,
        "looks": [[look.seeds, float(f"{look.error:.6g}"), look.of_reference] for look in looks],
        "asked": {name: _plain(getattr(study, name)) for name in options(study)},
        "options": option_words(study),
        "search": {path: bounds for space in spaces for path, bounds in space.items()},
        "points": [
            {**{name: getattr(point, name) for name in own}, "search": space, "cell": point.cell}
            for point, space in zip(points, spaces, strict=True)
        ],
        **({"data": facts} if facts else {}),
        "left_out": [point.label for point in study.points if point.label not in labels],
        "chosen": {
            planner.point.id: planner.best_setting_json()
            for planner in planners
            if planner.best_setting is not None
        },
    }


def option_words(study: Study) -> list[str]:
    """Return the options of the command line that set all fields to the study's values."""
    words: list[str] = []
    for name, option in options(study).items():
        value = getattr(study, name)
        if option.switch:
            words += [option.switch, option.flag, str(value)] if value else []
        elif isinstance(value, Mapping):
            for path, x in value.items():
                if name != "search":
                    words += [option.flag, setting_text(path, x)]
                elif x is not None:  # None is the default range of the field
                    words += [option.flag, range_text(path, range_json(x))]
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
        return {path: _plain(x) for path, x in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(x) for x in value]
    if isinstance(value, str | int | float | None):
        return value
    return type(value).__name__
