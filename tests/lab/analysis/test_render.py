"""Rankings as text: every format parses back, nothing is cut off, missing is never 0."""

import csv
import io
import json
import re
from dataclasses import replace

import markdown
import polars as pl
import pytest

from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import Report, TextTable, csv_note, render
from tests.lab.analysis.toy_study import ToyStudy

LABELS = {"full": "cut full", "pipe|d [bold] & 100%_$": "cut pipe|d [bold] & 100%_$"}


@pytest.fixture
def toy(tmp_path):
    toy = ToyStudy(tmp_path / "toy")
    floor = {"token": 2.5, "sentence": 1.0}
    toy.add_point("full", [3.01, 3.02, 3.03], floor=floor, aliases=("cut nothing", "no cut"))
    toy.add_point("pipe|d [bold] & 100%_$", [3.5, 3.4, 3.7], floor=floor, edge=("lr",))
    toy.add_point("once", [3.9], floor=floor)
    toy.add_point("wild", [4.0, None, 4.1], floor=floor, leaks="reads ahead")
    toy.add_point("vae", [2.0, 2.1, 2.2], score="bound")
    toy.add_run("full", 100, 3.3, status="pruned")
    return toy


def cells(line):
    return [cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_markdown_parses_back(toy):
    text = render(study_ranking(toy.path), "md")
    block = text.split("**exact log-likelihood")[1].split("\n\n")[1].splitlines()
    header, rule, *rows = map(cells, block)
    assert {len(row) for row in (header, rule, *rows)} == {len(header)}
    piped = LABELS["pipe|d [bold] & 100%_$"]
    assert [row[1] for row in rows] == ["cut full ≡", piped, "cut once", "cut wild"]
    named = [dict(zip(header, row, strict=True)) for row in rows]
    assert named[0] == {
        "rank": "1 (1–4)", "point": "cut full ≡", "loss": "3.020 ±0.025", "difference": "reference",
        "verdict": "", "p": "—", "chances": "—", "diverged": "", "ppl": "20.49",
        "above floor": "0.520", "marks": "",
    }  # fmt: skip
    assert named[1]["marks"] == "edge"
    assert (named[2]["rank"], named[2]["loss"], named[2]["p"]) == ("3 (—)", "3.900 ±—", "—")
    assert named[3]["marks"] == "leaks"


def test_csv_parses_back(toy):
    rows = list(csv.DictReader(io.StringIO(render(study_ranking(toy.path), "csv"))))
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "1"]
    assert [row["score"] for row in rows] == ["exact"] * 4 + ["bound"]
    assert rows[0]["aliases"] == "cut nothing; no cut"
    assert rows[2]["low"] == ""
    assert float(rows[0]["loss"]) == pytest.approx(3.02)
    assert json.loads(rows[0]["setting"]) == {"lr": 0.003, "model.width": 32}


def test_json_parses_back(toy):
    value = json.loads(render(study_ranking(toy.path), "json"))
    first, _, once, wild, _ = value["rows"]
    assert first["setting"] == {"lr": 0.003, "model.width": 32}
    assert first["aliases"] == ["cut nothing", "no cut"]
    assert (once["low"], once["p"], once["rank_low"]) == (None, None, None)
    assert wild["marks"] == ["leaks"]
    assert value["question"] == toy.study_json["question"]
    assert value["made_by"].keys() == {"lmzoo", "commit", "statistics"}
    assert value["account"]["runs"] == sum(value["account"].values()) / 2 == 14


def test_latex_rows_are_equally_long_and_escaped(toy):
    text = render(study_ranking(toy.path), "latex")
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    tabulars = "\n".join(lines).split(r"\begin{tabular}")[1:]
    assert len(tabulars) == 4
    for tabular in tabulars:
        columns = re.match(r"\{([lr]+)\}", tabular)
        rows = [line for line in tabular.splitlines() if line.endswith(r"\\")]
        assert columns
        assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(columns[1])}
        assert not re.search(r"(?<!\\)[%_#]|[±−≡—]", tabular)
    assert r"cut pipe\textbar{}d [bold] \& 100\%\_\$" in text


@pytest.mark.parametrize("width", [120, 140])
def test_the_table_fits_the_width_and_is_complete(toy, width):
    text = render(study_ranking(toy.path), "table", width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    parts = (*LABELS.values(), "3.020 ±0.025", "leaks", "1/3,", "model.width=32")
    assert set(" ".join(parts).split()) <= set(text.split())
    assert "\x1b" not in text
    assert "\x1b[1m" in render(study_ranking(toy.path), "table", width=width, colour=True)


def test_heading_and_legend_describe_the_study(toy):
    (toy.path / "stray").mkdir()
    toy.study_json["points"].append({"id": "never", "label": "cut never", "aliases": []})
    toy.write()
    text = render(study_ranking(toy.path), "table", width=400)
    for part in (
        "Which path can be cut?",
        "toy: token loss in nats per token, test at epoch 3",
        "2 settings, 3 seeds, 3 epochs; search space: lr 0.0001 to 0.1 log; model.width 8 to 256; "
        "recipe.clip 1 or None",
        "14 runs: 12 finished, 1 pruned, 1 diverged, 0 failed, 0 not ended",
        "exact log-likelihood; ptb (lines=100); vocabulary of 30, sequences of up to 20 tokens; "
        "entropy floor 2.5000",
        "bound (at least the true loss, in expectation)",
        "edge: the chosen value is the first or last one tried",
        "lr=0.003 (edge), model.width=32",
        "diverged: confirm runs that diverged",
        "leaks: not a language model's loss; cut wild: reads ahead",
        "the same function: cut full ≡ cut nothing ≡ no cut",
        "no run yet: cut never",
        "WARNING: stray has no readable config.json",
    ):
        assert part in text
    assert "missing" not in text  # marks without points have no legend


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_narrow_terminal_loses_no_cell_and_breaks_no_name(width):
    name = "state_to_candidate"
    header = ("rank", "point", "loss", "difference", "above floor")
    rows = [("1", f"cut {name} (4)", "1.937 ±0.056", "−0.007 ±0.045", "0.450")]
    table = TextTable("ranking", header, rows, frozenset({"point"}))
    text = render(Report((), (table,), (), pl.DataFrame()), "table", width=width)
    assert all(cell in text for cell in (*header, rows[0][0], *rows[0][2:], name))


def test_markdown_shows_every_character_as_it_is():
    text = r"<unk> a_b * [c] `d` | \e"
    table = TextTable("title", ("head",), ((text,),))
    report = Report((text,), (table,), (), pl.DataFrame())
    html = markdown.markdown(render(report, "md"), extensions=["tables"])
    shown = re.sub(r"<[^>]+>", "\n", html).splitlines()
    assert shown.count(text.replace("<", "&lt;").replace(">", "&gt;")) == 2


def test_cells_that_would_run_are_text_and_the_note_of_a_csv_says_so():
    labels = ["[64, 64]", "*big", "=HYPERLINK(1)", "+cmd", "@SUM", "-1.5", "-x"]
    rows = [(label, "1.0") for label in labels]
    table = TextTable("t", ("label", "loss"), rows, frozenset({"label"}))
    report = Report((), (table,), (), pl.DataFrame({"label": labels}))
    latex = [line.partition(" &")[0] for line in render(report, "latex").splitlines()]
    assert {"{[}64, 64]", "{*}big"} < {*latex}
    cells = [row[0] for row in csv.reader(io.StringIO(render(report, "csv")))]
    assert cells[3:] == ["'=HYPERLINK(1)", "'+cmd", "'@SUM", "-1.5", "'-x"]
    assert csv_note(report).startswith("label: cells that a spreadsheet would run")
    warned = replace(report, warnings=("WARNING: a/config.json is damaged",))
    assert csv_note(warned) == f"WARNING: a/config.json is damaged\n{csv_note(report)}"
