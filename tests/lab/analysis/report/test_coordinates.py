"""Every figure stands where the records say: marks are read back by the labels of the ticks."""

import re
from collections import defaultdict

import numpy as np
import polars as pl
import pytest
import vl_convert

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.report.figure import figures
from tests.lab.analysis.toy_study import change_lines

KINDS = {
    "minimize": (1.5, 0.01, "nats"), "maximize": (0.7, 0.01, "accuracy"),
    "negative": (-5, 0.1, "x"),
    "percent": (70, 1, "%"), "tiny": (1e-6, 1e-8, "J"), "huge": (1e6, 1e3, "USD"),
}  # fmt: skip
"""Kind of metric -> its middle, a step and its unit."""
STEPS = {"full": 0, "up": 5, "down": -4, "near": 1}
"""Point -> its mean loss in steps from the middle."""
LEVELS = {"full": "ac", "up": "ad", "down": "bc", "near": "bd"}
NOISE = (-0.2, 0.0, 0.1, 0.3)
PREFIXES = {"": 1, "k": 1e3, "M": 1e6, "m": 1e-3, "µ": 1e-6, "n": 1e-9, "%": 0.01}
WIDTH = 600


def own_study(toy, kind):
    """Write a study, and return the losses of its points and of its tuning runs."""
    middle, step, unit = KINDS[kind]
    sign = 1
    direction = "minimize"
    if kind == "maximize":
        sign = -1
        direction = kind
    toy.study_json["asked"] = {"direction": direction, "unit": unit, "metric": "m"}
    toy.study_json["margin"] = step
    toy.epochs = 1
    toy.study_json["budget"]["epochs"] = 1
    losses = {}
    program = {"score": "metric", "program": "function"}
    for i, (name, steps) in enumerate(STEPS.items(), start=1):
        own = NOISE[i:] + NOISE[:i]  # differences vary between seeds
        losses[name] = [middle + (steps + noise) * step for noise in own]
        model = dict(zip(("norm", "act"), LEVELS[name], strict=True))
        costs = {"parameters": 1000 * i, "flops": 50 * i * i}
        runs = toy.add_point(
            name, [sign * x for x in losses[name]], model=model, **costs, **program
        )
        for run in runs:
            change_lines(toy.records_path(run), "test", metric="m")
            change_lines(toy.records_path(run), "epoch", seconds=i)
    tuned = []
    for i in range(6):
        lr = 10 ** (-3 + 0.4 * i)
        width = 10 + 7 * i % 50
        tuned.append((lr, width, middle + 0.3 * step * i))
        setting = {"lr": lr, "model.width": width}
        toy.add_run("full", 100 + i, sign * tuned[-1][2], setting=setting, **program)
    toy.write()
    return losses, tuned


def marks_of(node):
    """Yield the groups of marks of a drawing, each with all that it contains."""
    if "marktype" in node:
        yield node
    for item in node.get("items", ()):
        yield from marks_of(item)


def items_of(node, role):
    return [item for own in marks_of(node) if own.get("role") == role for item in own["items"]]


def as_float(text):
    found = re.fullmatch(r"([-+−\d.,]+(?:e[-−+]?\d+)?)(\D?)", text)
    assert found is not None, text
    return float(found[1].replace("−", "-").replace(",", "")) * PREFIXES[found[2]]


class Drawn:
    """A chart as it is drawn; `log` has the axes that are logarithmic."""

    def __init__(self, chart, log=""):
        spec = {**chart, "width": WIDTH, "autosize": "pad"}
        self.scene = vl_convert.vegalite_to_scenegraph(spec)["scenegraph"]
        self.titles = {item["text"] for item in items_of(self.scene, "axis-title")}
        self.log = log
        self.scales = {}
        for group in marks_of(self.scene):
            if group.get("role") == "axis":
                self._read(items_of(group, "axis-tick"), items_of(group, "axis-label"))

    def _read(self, ticks, labels):
        texts = [str(label["text"]) for label in labels]
        numbers = [
            (tick, text)
            for tick, text in zip(ticks, texts, strict=False)  # names have none
            if re.match(r"[-+−\d]", text)
        ]
        if len(numbers) < 2:
            return
        channel = "y"
        if "y2" in ticks[0]:
            channel = "x"
        values = [as_float(text) for _, text in numbers]
        if channel in self.log:
            values = np.log(values)
        slope, start = np.polyfit([tick.get(channel, 0) for tick, _ in numbers], values, 1)
        # To the right and upwards are the higher values: no axis is mirrored.
        assert (slope > 0) == (channel == "x")
        self.scales[channel] = (slope, start)

    def pixel(self, value, channel):
        """Return where a number is on the axis of a channel, x2 on that of x."""
        slope, start = self.scales[channel[0]]
        if channel[0] in self.log:
            value = np.log(value)
        return (value - start) / slope

    def has(self, expected, *channels, kind="symbol"):
        """Check that the visible marks are those of label -> rows of numbers, one a channel."""
        found = defaultdict(list)
        for group in marks_of(self.scene):
            if group["marktype"] != kind or group.get("role") != "mark":
                continue
            for item in group["items"]:
                label = re.search(r"(?:^|; )(?:label|point): cut (.*?)(?:;|$)", item["description"])
                if label and item.get("opacity", 1) > 0:
                    found[label[1]].append([item.get(channel, 0) for channel in channels])
        assert found.keys() == expected.keys()
        for label, numbers in expected.items():
            places = np.array(
                [
                    [self.pixel(x, channel) for x, channel in zip(row, channels, strict=True)]
                    for row in numbers
                ]
            )
            # Ticks stand at whole pixels.
            assert np.allclose(sorted(found[label]), sorted(places.tolist()), rtol=0, atol=1), label


def rows(ranked):
    return ranked.filter(~pl.col("reference")).to_dicts()


@pytest.mark.parametrize("kind", KINDS)
def test_marks_stand_where_the_records_say(toy, kind):
    """The reference of differences is at 0; losses, costs and settings are those of the runs."""
    unit = KINDS[kind][-1]
    verdicts = {"up": "worse", "down": "better"}
    if kind == "maximize":
        verdicts = {"up": "better", "down": "worse"}
    losses, tuned = own_study(toy, kind)
    ranked = study_ranking(toy.path).frame
    charts = figures(load_study(toy.path), ranked)
    means = {label: np.mean(own) for label, own in losses.items()}
    order = {label: i for i, label in enumerate(losses, start=1)}

    forest = Drawn(charts["forest"])
    assert f"difference in {unit}" in forest.titles
    forest.has({label: [[mean - means["full"]]] for label, mean in means.items()}, "x")
    ends = {row["point"]: [[row["difference_low"], row["difference_high"]]] for row in rows(ranked)}
    forest.has(ends, "x", "x2", kind="rule")
    assert verdicts.items() <= {row["point"]: row["verdict"] for row in rows(ranked)}.items()

    curves = Drawn(charts["curves"])
    assert f"validation {unit}" in curves.titles
    curves.has({label: [[mean]] for label, mean in means.items()}, "y")

    Drawn(charts["seeds"]).has({label: [[x] for x in own] for label, own in losses.items()}, "x")

    costs = {
        "cost-parameters": ("", {label: 1000 * i for label, i in order.items()}),
        "cost-flops": ("x", {label: 50 * i * i for label, i in order.items()}),
        "cost-seconds": ("", order),
    }
    for name, (log, own) in costs.items():
        drawn = Drawn(charts[name], log)
        assert unit in drawn.titles
        drawn.has({label: [[own[label], mean]] for label, mean in means.items()}, "x", "y")

    search = Drawn(charts["tuning-lr"], "x")
    search.has({"full": [[lr, loss] for lr, _, loss in tuned]}, "x", "y")


def test_an_axis_of_one_value_has_its_number(toy):
    """Vega rounds the only label of an axis: 1.5 stood at "2"."""
    toy.add_point("full", [1.5, 1.5], parameters=10)
    toy.add_point("same", [1.5, 1.5], parameters=20)
    toy.add_run("full", 10, 1.5)
    charts = figures(load_study(toy.write()), study_ranking(toy.path).frame)
    equal = {"full": [[1.5]], "same": [[1.5]]}
    Drawn(charts["seeds"]).has({label: [[1.5], [1.5]] for label in equal}, "x")
    Drawn(charts["cost-parameters"]).has(equal, "y")
    Drawn(charts["tuning-lr"], "x").has({"full": [[1.5], [1.5]]}, "y")  # and its ring
