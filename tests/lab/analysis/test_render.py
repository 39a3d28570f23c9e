"""Rankings as text: every format parses back, nothing is cut off, missing is never 0."""

import csv
import io
import json
import re
from dataclasses import replace
from html import escape

import markdown
import polars as pl
import pytest

from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import Report, TextTable, csv_note, render
from tests.cases import cases, rows
from tests.lab.analysis.toy_study import ToyStudy

LABELS = {"full": "cut full", "pipe|d [bold] & 100%_$": "cut pipe|d [bold] & 100%_$"}


@pytest.fixture
def toy(tmp_path):
    toy = ToyStudy(tmp_path / "toy")
    floor = {"token": 2.5, "sentence": 1.0}
    toy.add_points("full: 3.01 3.02 3.03", floor=floor, aliases=("cut nothing", "no cut"))
    toy.add_points("pipe|d [bold] & 100%_$: 3.5 3.4 3.7", floor=floor, edge=("lr",))
    toy.add_points("once: 3.9", floor=floor)
    toy.add_points("wild: 4.0 - 4.1", floor=floor, leaks="reads ahead")
    toy.add_points("vae: 2.0 2.1 2.2", score="bound")
    toy.add_run("full", 100, 3.3, status="pruned")
    return toy


def cells(line):
    """Return the cells of a line of Markdown, in which a bar may be escaped."""
    _, *parts, _ = re.split(r"(?<!\\)\|", line)
    return [part.strip().replace("\\", "") for part in parts]


@pytest.fixture
def report(toy):
    return study_ranking(toy.path)


@pytest.fixture
def exact(report):
    """The rows of the first table of Markdown."""
    _, after = render(report, "md").split("**exact log-likelihood")
    _, block, *_ = after.split("\n\n")
    header, rule, *lines = map(cells, block.splitlines())
    assert len(rule) == len(header)
    found = []
    for line in lines:
        found.append(dict(zip(header, line, strict=True)))
    return found


def test_markdown_has_a_row_of_each_point(exact):
    first, edge, once, leaking = exact
    assert first == rows("lab/analysis/cases.toml", "first_row")
    assert edge["point"] == LABELS["pipe|d [bold] & 100%_$"]
    assert edge["marks"] == "edge"
    assert once["point"] == "cut once"
    assert leaking["point"] == "cut wild"
    assert leaking["marks"] == "leaks"


def test_markdown_shows_what_is_missing(exact):
    once = exact[2]
    assert once["rank"] == "3 (—)"
    assert once["loss"] == "3.900 ±—"
    assert once["p"] == "—"


SETTING = {"lr": 0.003, "model.width": 32}


def test_csv_parses_back(report):
    frame = pl.read_csv(io.StringIO(render(report, "csv")))
    first, _, once, *_ = frame.to_dicts()
    assert frame["rank"].to_list() == [1, 2, 3, 4, 1]
    assert frame["score"].to_list() == ["exact"] * 4 + ["bound"]
    assert first["aliases"] == "cut nothing; no cut"
    assert first["loss"] == pytest.approx(3.02)
    assert json.loads(first["setting"]) == SETTING
    assert once["low"] is None


@pytest.fixture
def parsed(report):
    return json.loads(render(report, "json"))


def test_json_has_values_of_their_types(parsed):
    first, _, once, wild, _ = parsed["rows"]
    assert first["setting"] == SETTING
    assert first["aliases"] == ["cut nothing", "no cut"]
    assert once["low"] is None
    assert once["p"] is None
    assert once["rank_low"] is None
    assert wild["marks"] == ["leaks"]


def test_json_has_question_version_and_account(toy, parsed):
    assert parsed["question"] == toy.study_json["question"]
    assert parsed["made_by"].keys() == {"lmzoo", "commit", "statistics"}
    runs = parsed["account"].pop("runs")
    assert runs == sum(parsed["account"].values()) == 14


def test_latex_rows_are_equally_long_and_escaped(report):
    text = render(report, "latex")
    without_comments = re.sub("^%.*$", "", text, flags=re.MULTILINE)
    _, *tabulars = without_comments.split(r"\begin{tabular}")
    assert len(tabulars) == 4
    for tabular in tabulars:
        columns = re.match(r"\{([lr]+)\}", tabular)
        assert columns
        for line in tabular.splitlines():
            if line.endswith(r"\\"):
                own = re.split(r"(?<!\\)&", line)
                assert len(own) == len(columns[1])
        assert not re.search(r"(?<!\\)[%_#]|[±−≡—]", tabular)
    assert r"cut pipe\textbar{}d [bold] \& 100\%\_\$" in text


@pytest.mark.parametrize("width", [120, 140])
def test_the_table_fits_the_width_and_is_complete(report, width):
    text = render(report, "table", width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    parts = list(LABELS.values()) + ["3.020 ±0.025", "leaks", "1/3,", "model.width=32"]
    words = set(text.split())
    for part in parts:
        assert words.issuperset(part.split())


def test_the_table_has_colours_only_if_asked(report):
    assert "\x1b" not in render(report, "table", width=120)
    assert "\x1b[1m" in render(report, "table", width=120, colour=True)


@pytest.fixture
def wide(toy):
    """The table of a study with a stray folder and a point without a run."""
    (toy.path / "stray").mkdir()
    toy.add_unconfirmed("never")
    return render(study_ranking(toy.write()), "table", width=400)


@cases("lab/analysis/cases.toml", "described", "part")
def test_heading_and_legend_describe_the_study(wide, part):
    assert part in wide


def test_marks_without_points_have_no_legend(wide):
    assert "missing" not in wide


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_narrow_terminal_loses_no_cell_and_breaks_no_name(width):
    header = ("rank", "point", "loss", "difference", "above floor")
    numbers = ("1.937 ±0.056", "−0.007 ±0.045", "0.450")
    line = ("1", "cut state_to_candidate (4)") + numbers
    table = TextTable("ranking", header, [line], frozenset({"point"}))
    text = render(report_of(table), "table", width=width)
    for cell in header + numbers + ("state_to_candidate",):
        assert cell in text


def report_of(table, heading=(), frame=None):
    if frame is None:
        frame = pl.DataFrame()
    return Report(heading, (table,), (), frame)


def test_markdown_shows_every_character_as_it_is():
    text = r"<unk> a_b * [c] `d` | \e"
    table = TextTable("title", ("head",), ((text,),))
    report = report_of(table, heading=(text,))
    html = markdown.markdown(render(report, "md"), extensions=["tables"])
    shown = re.sub(r"<[^>]+>", "\n", html).splitlines()
    assert shown.count(escape(text)) == 2


@pytest.fixture
def of_odd_labels():
    """A report of labels that LaTeX or a spreadsheet would run."""
    labels = ["[64, 64]", "*big", "=HYPERLINK(1)", "+cmd", "@SUM", "-1.5", "-x"]
    lines = [(label, "1.0") for label in labels]
    table = TextTable("t", ("label", "loss"), lines, frozenset({"label"}))
    frame = pl.DataFrame({"label": labels})
    return report_of(table, frame=frame)


def test_cells_that_latex_would_run_are_text(of_odd_labels):
    lines = render(of_odd_labels, "latex").splitlines()
    first = {line.partition(" &")[0] for line in lines}
    assert {"{[}64, 64]", "{*}big"} < first


def test_cells_that_a_spreadsheet_would_run_are_text(of_odd_labels):
    lines = csv.reader(io.StringIO(render(of_odd_labels, "csv")))
    first = [line[0] for line in lines]
    assert first[3:] == ["'=HYPERLINK(1)", "'+cmd", "'@SUM", "-1.5", "'-x"]


def test_the_note_of_a_csv_has_the_warnings_and_says_what_is_text(of_odd_labels):
    note = csv_note(of_odd_labels)
    warned = replace(of_odd_labels, warnings=("WARNING: a/config.json is damaged",))
    assert note.startswith("label: cells that a spreadsheet would run")
    assert csv_note(warned) == f"WARNING: a/config.json is damaged\n{note}"
