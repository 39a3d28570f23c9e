"""Every figure stands where the records say: marks are read back by the labels of the ticks."""

import re
from collections import defaultdict

import numpy as np
import pytest
import vl_convert

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.report.figure import figures
from tests.cases import rows
from tests.lab.analysis.report.toy_charts import charts_of
from tests.lab.analysis.toy_study import ToyStudy, change_lines

KINDS = rows("lab/analysis/cases.toml", "metrics")
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
    for number, name in enumerate(STEPS, start=1):
        # Differences vary between seeds.
        noise = np.roll(NOISE, -number)
        values = middle + (STEPS[name] + noise) * step
        losses[name] = values.tolist()
        norm, act = LEVELS[name]
        facts = program | {
            "model": {"norm": norm, "act": act},
            "parameters": 1000 * number,
            "flops": 50 * number**2,
        }
        stored = sign * values
        for run in toy.add_point(name, stored.tolist(), **facts):
            path = toy.records_path(run)
            change_lines(path, "test", metric="m")
            change_lines(path, "epoch", seconds=number)
    tuned = []
    for number in range(6):
        # From 0.001 to 0.1.
        rate = 10 ** (-3 + 0.4 * number)
        width = 10 + 7 * number % 50
        loss = middle + 0.3 * step * number
        tuned.append((rate, loss))
        setting = {"lr": rate, "model.width": width}
        toy.add_run("full", 100 + number, sign * loss, setting=setting, **program)
    toy.write()
    return losses, tuned


def marks_of(node):
    """Yield the groups of marks of a drawing, each with all that it contains."""
    if "marktype" in node:
        yield node
    for item in node.get("items", ()):
        yield from marks_of(item)


def items_of(node, role):
    items = []
    for group in marks_of(node):
        if group.get("role") == role:
            items += group["items"]
    return items


def as_float(text):
    found = re.fullmatch(r"([-+−\d.,]+(?:e[-−+]?\d+)?)(\D?)", text)
    assert found is not None, text
    number, prefix = found.groups()
    plain = number.replace("−", "-").replace(",", "")
    return float(plain) * PREFIXES[prefix]


LABEL = re.compile(r"(?:^|; )(?:label|point): cut (.*?)(?:;|$)")


class Drawn:
    """A chart as it is drawn; `log` has the axes that are logarithmic."""

    def __init__(self, chart, log=""):
        spec = chart | {"width": WIDTH, "autosize": "pad"}
        drawn = vl_convert.vegalite_to_scenegraph(spec)
        self.scene = drawn["scenegraph"]
        titles = items_of(self.scene, "axis-title")
        self.titles = {item["text"] for item in titles}
        self.log = log
        self.scales = {}
        for group in marks_of(self.scene):
            if group.get("role") == "axis":
                self._read(items_of(group, "axis-tick"), items_of(group, "axis-label"))

    def _read(self, ticks, labels):
        """Read a scale from the numbers at its ticks; an axis of names has none."""
        numbers = []
        for tick, label in zip(ticks, labels, strict=False):
            text = str(label["text"])
            if re.match(r"[-+−\d]", text):
                numbers.append((tick, as_float(text)))
        if len(numbers) < 2:
            return
        channel = "y"
        if "y2" in ticks[0]:
            channel = "x"
        pixels = [tick.get(channel, 0) for tick, _ in numbers]
        values = [value for _, value in numbers]
        if channel in self.log:
            values = np.log(values)
        slope, start = np.polyfit(pixels, values, 1)
        # To the right and upwards are the higher values: no axis is mirrored.
        assert (slope > 0) == (channel == "x")
        self.scales[channel] = (slope, start)

    def pixel(self, value, channel):
        """Return where a number is on the axis of a channel, x2 on that of x."""
        slope, start = self.scales[channel[0]]
        if channel[0] in self.log:
            value = np.log(value)
        return (value - start) / slope

    def found(self, channels, kind):
        """Return the places of the visible marks of each point."""
        places = defaultdict(list)
        for group in marks_of(self.scene):
            if group["marktype"] != kind or group.get("role") != "mark":
                continue
            for item in group["items"]:
                label = LABEL.search(item["description"])
                if label and item.get("opacity", 1) > 0:
                    place = [item.get(channel, 0) for channel in channels]
                    places[label[1]].append(place)
        return places

    def has(self, expected, *channels, kind="symbol"):
        """Check that the visible marks are those of label -> rows of numbers, one a channel."""
        found = self.found(channels, kind)
        assert found.keys() == expected.keys()
        for label, numbers in expected.items():
            places = []
            for row in numbers:
                places.append(list(map(self.pixel, row, channels)))
            # Ticks stand at whole pixels.
            drawn = sorted(found[label])
            assert np.allclose(drawn, sorted(places), rtol=0, atol=1), label


class Charts:
    """The charts of a study of a kind of metric, and what it has of each point."""

    def __init__(self, toy, kind):
        _, _, self.unit = KINDS[kind]
        self.losses, self.tuned = own_study(toy, kind)
        ranked = study_ranking(toy.path).frame
        self.rows = ranked.filter(reference=False).to_dicts()
        self.specs = figures(load_study(toy.path), ranked)
        self.means = {label: np.mean(own) for label, own in self.losses.items()}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def charts(kind, tmp_path_factory):
    return Charts(ToyStudy(tmp_path_factory.mktemp("charts") / "toy"), kind)


def test_the_differences_of_a_forest_plot_stand_at_their_means(charts):
    """The reference is at 0."""
    forest = Drawn(charts.specs["forest"])
    reference = charts.means["full"]
    differences = {}
    for label, mean in charts.means.items():
        differences[label] = [[mean - reference]]
    assert f"difference in {charts.unit}" in forest.titles
    forest.has(differences, "x")


def test_the_rules_of_a_forest_plot_are_the_intervals(charts):
    forest = Drawn(charts.specs["forest"])
    ends = {}
    for row in charts.rows:
        interval = [row["difference_low"], row["difference_high"]]
        ends[row["point"]] = [interval]
    forest.has(ends, "x", "x2", kind="rule")


def test_a_verdict_follows_the_direction_of_the_metric(charts, kind):
    found = {row["point"]: row["verdict"] for row in charts.rows}
    if kind == "maximize":
        assert found["up"] == "better"
        assert found["down"] == "worse"
    else:
        assert found["up"] == "worse"
        assert found["down"] == "better"


def test_the_curves_end_at_the_means(charts):
    curves = Drawn(charts.specs["curves"])
    means = {label: [[mean]] for label, mean in charts.means.items()}
    assert f"validation {charts.unit}" in curves.titles
    curves.has(means, "y")


def test_each_seed_has_a_mark_at_its_loss(charts):
    seeds = Drawn(charts.specs["seeds"])
    losses = {}
    for label, own in charts.losses.items():
        losses[label] = [[loss] for loss in own]
    seeds.has(losses, "x")


@pytest.mark.parametrize(
    ("name", "cost", "log"),
    [
        ("cost-parameters", lambda number: 1000 * number, ""),
        ("cost-flops", lambda number: 50 * number**2, "x"),
        ("cost-seconds", lambda number: number, ""),
    ],
)
def test_a_point_stands_at_its_cost_and_its_loss(charts, name, cost, log):
    drawn = Drawn(charts.specs[name], log)
    places = {}
    for number, (label, mean) in enumerate(charts.means.items(), start=1):
        places[label] = [[cost(number), mean]]
    assert charts.unit in drawn.titles
    drawn.has(places, "x", "y")


def test_a_run_of_the_search_stands_at_its_rate_and_its_loss(charts):
    search = Drawn(charts.specs["tuning-lr"], "x")
    search.has({"full": charts.tuned}, "x", "y")


@pytest.mark.parametrize(
    ("name", "log", "channel", "places"),
    [
        ("seeds", "", "x", {"full": 2, "same": 2}),
        ("cost-parameters", "", "y", {"full": 1, "same": 1}),
        ("tuning-lr", "x", "y", {"full": 2}),  # and its ring
    ],
)
def test_an_axis_of_one_value_has_its_number(toy, name, log, channel, places):
    """Vega rounds the only label of an axis: 1.5 stood at "2"."""
    toy.add_points("full: 1.5 1.5", parameters=10)
    toy.add_points("same: 1.5 1.5", parameters=20)
    toy.add_run("full", 10, 1.5)
    chart = Drawn(charts_of(toy)[name], log)
    expected = {label: [[1.5]] * count for label, count in places.items()}
    chart.has(expected, channel)
