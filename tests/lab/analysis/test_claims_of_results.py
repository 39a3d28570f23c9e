"""Sentences of the results pages: a verdict or a bound that a page states is that of its record."""

import re
from pathlib import Path

import polars as pl
import pytest

from lmzoo.lab.analysis.verdict_lines import verdict_text
from tests.lab.analysis.recorded import PAGES, frame_of

CLAIM = re.compile(r"^(\S+): (.+)\n((?: +.*\n)+)", re.MULTILINE)
CLAIMS = CLAIM.findall(Path(__file__).with_name("claims.txt").read_text("utf-8"))


def holds(row: dict, claim: str) -> bool:
    kind, _, value = claim.partition(" ")
    if "±" in claim:
        half = (row["difference_high"] - row["difference_low"]) / 2
        return f"{row['difference']:+.3f} ±{half:.3f}".replace("-", "−") == claim
    if " to " in claim:
        ends = [*map(float, claim.split(" to "))]
        return [row["difference_low"], row["difference_high"]] == pytest.approx(ends, abs=0.0016)
    if kind == "loss":
        return row["loss"] == pytest.approx(float(value), abs=5e-4)
    if value.startswith("at most "):
        return 100 * row[f"{kind}_high"] <= float(value.removeprefix("at most "))
    if kind == "accuracy":
        return round(100 * row[kind], 1) == float(value)
    if value.startswith("by "):
        return row[f"{kind}_difference"] >= float(value.removeprefix("by "))
    if kind in ("kn5", "runs", "solved"):
        return str(row[kind]) == value
    return (row["verdict"] if claim == "undecided" else verdict_text(row)) == claim


@pytest.mark.parametrize(("page", "sentence", "rows"), CLAIMS)
def test_a_sentence_is_that_of_its_record(page, sentence, rows):
    text = (PAGES / f"{page}.md").resolve().read_text(encoding="utf-8")
    assert sentence in " ".join(text.split())
    for line in rows.splitlines():
        record, label, claim = (part.strip() for part in line.split(" | "))
        known = frame_of(record).to_dicts()
        column = "kn5" if claim.startswith("kn5") else "verdict"
        own = [r for r in known if r["label"] == label or (label == "*" and r[column])]
        assert own, line
        assert all(holds(row, claim) for row in own), line


def test_a_claim_that_its_record_does_not_have_is_seen():
    row = next(r for r in frame_of("reference-words").to_dicts() if r["label"] == "MGRU")
    wrong = ("negligible", "undecided", "0.1 to 0.2", "loss 3.6", "kn5 loses", "kn5 by 0.1")
    for claim in (*wrong, "+0.1 ±0.1"):
        assert not holds(row, claim), claim
    assert holds(row, "worse (size open)")
    assert len(CLAIMS) > 40


def test_what_is_published_of_a_cut_agrees_where_our_verdict_has_a_sign():
    text = (PAGES / "modern_cells.md").read_text(encoding="utf-8")
    headings = ("Gated linear attention", "Gated DeltaNet", "HGRN2")
    tables = [table(text.split(f"\n## {heading}\n")[1], "cut") for heading in headings]
    signs = [row["sign"] for rows in tables for row in rows]
    assert (len(signs), signs.count("agrees"), signs.count("undecided")) == (9, 5, 4)


NUMBERS = {2: "two seeds", 3: "three seeds"}
INDEX = (PAGES / "index.md").read_text(encoding="utf-8")
ANSWERED = dict(re.findall(r"^\| \[.*?\]\((\w+)\.md\) \| (.*?) \|$", INDEX, re.M))


@pytest.mark.parametrize("page", ANSWERED)
def test_a_page_begins_with_its_question_and_how_sure_its_studies_are(page):
    _, question, *_ = (text := (PAGES / f"{page}.md").read_text(encoding="utf-8")).split("\n\n")
    assert question == ANSWERED[page]
    assert question.endswith("?")
    ranked = set(re.findall(r"<!-- table: (?:rank|answer) records/([\w-]+)", text))
    first = re.search(r"<!-- table: caveats (.*?) -->", text)
    known = set(re.findall(r"records/([\w-]+)", first[1])) if first else set()
    assert ranked <= known
    assert not known or first.start() < re.search(r"^(\*\*|## )", text, re.MULTILINE).start()
    for record in known:
        frame = frame_of(record)
        seeds = frame.filter(pl.col("parameters") != 0)["runs"].min()
        assert NUMBERS.get(seeds, "") in text


def table(page: str, first: str) -> list[dict[str, str]]:
    lines = page[page.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rows]
