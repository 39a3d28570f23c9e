"""Sentences of the results pages: a verdict or a bound that a page states is that of its record."""

import re
from pathlib import Path

import polars as pl
import pytest

from lmzoo.lab.analysis.verdict_lines import verdict_text
from tests.lab.analysis.recorded import PAGES, frame_of

CLAIM = re.compile(r"^(\S+): (.+)\n((?: +.*\n)+)", re.MULTILINE)
TEXT = Path(__file__).with_name("claims.txt").read_text("utf-8")
CLAIMS = CLAIM.findall(TEXT)


def holds(row: dict, claim: str) -> bool:
    kind, _, value = claim.partition(" ")
    low = row["difference_low"]
    high = row["difference_high"]
    if "±" in claim:
        text = f"{row['difference']:+.3f} ±{(high - low) / 2:.3f}"
        return text.replace("-", "−") == claim
    if " to " in claim:
        ends = [float(end) for end in claim.split(" to ")]
        return [low, high] == pytest.approx(ends, abs=0.0016)
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
    if claim == "undecided":
        return row["verdict"] == claim
    return verdict_text(row) == claim


@pytest.mark.parametrize(("page", "sentence", "rows"), CLAIMS)
def test_a_sentence_is_that_of_its_record(page, sentence, rows):
    words = page_text(page).split()
    # A sentence of a page may be on several lines.
    assert sentence in " ".join(words)
    for line in rows.splitlines():
        record, label, claim = map(str.strip, line.split(" | "))
        known = rows_of(record, label, claim)
        assert known, line
        for row in known:
            assert holds(row, claim), line


def page_text(page: str) -> str:
    return (PAGES / f"{page}.md").resolve().read_text(encoding="utf-8")


def rows_of(record: str, label: str, claim: str) -> list[dict]:
    """Return the rows that a claim is about; `*` are all that have a verdict of its kind."""
    rows = frame_of(record).to_dicts()
    if label != "*":
        return [row for row in rows if row["label"] == label]
    if claim.startswith("kn5"):
        return [row for row in rows if row["kn5"]]
    return [row for row in rows if row["verdict"]]


@pytest.fixture
def mgru():
    (row,) = rows_of("reference-words", "MGRU", "")
    return row


@pytest.mark.parametrize(
    "claim",
    ["negligible", "undecided", "0.1 to 0.2", "loss 3.6", "kn5 loses", "kn5 by 0.1", "+0.1 ±0.1"],
)
def test_a_claim_that_its_record_does_not_have_is_seen(mgru, claim):
    assert not holds(mgru, claim)


def test_a_claim_that_its_record_has_holds(mgru):
    assert holds(mgru, "worse (size open)")


def test_the_pages_have_claims():
    assert len(CLAIMS) > 40


def test_what_is_published_of_a_cut_agrees_where_our_verdict_has_a_sign():
    signs = []
    for heading in ("Gated linear attention", "Gated DeltaNet", "HGRN2"):
        _, section = page_text("modern_cells").split(f"\n## {heading}\n")
        signs += [row["sign"] for row in table(section, "cut")]
    assert sorted(signs) == ["agrees"] * 5 + ["undecided"] * 4


NUMBERS = {2: "two seeds", 3: "three seeds"}
INDEX = (PAGES / "index.md").read_text(encoding="utf-8")
ANSWERED = dict(re.findall(r"^\| \[.*?\]\((\w+)\.md\) \| (.*?) \|$", INDEX, re.M))


@pytest.mark.parametrize("page", ANSWERED)
def test_a_page_begins_with_its_question_and_how_sure_its_studies_are(page):
    text = page_text(page)
    _, question, *_ = text.split("\n\n")
    assert question == ANSWERED[page]
    assert question.endswith("?")
    ranked = re.findall(r"<!-- table: (?:rank|answer) records/([\w-]+)", text)
    caveats = re.search(r"<!-- table: caveats (.*?) -->", text)
    if caveats is None:
        assert not ranked
        return
    known = re.findall(r"records/([\w-]+)", caveats[1])
    assert set(ranked) <= set(known)
    answer = re.search(r"^(\*\*|## )", text, re.MULTILINE)
    assert caveats.start() < answer.start()
    in_sight = re.sub(
        "<details.*?</details>|<!--.*?-->", "", text[: answer.start()], flags=re.DOTALL
    )
    assert len(in_sight.split()) < 250
    for record in known:
        trained = frame_of(record).filter(pl.col("parameters") != 0)
        assert NUMBERS.get(trained["runs"].min(), "") in text


def table(page: str, first: str) -> list[dict[str, str]]:
    start = page.index(f"| {first} |")
    lines, _, _ = page[start:].partition("\n\n")
    header, _, *rows = map(cells, lines.splitlines())
    found = []
    for row in rows:
        found.append(dict(zip(header, row, strict=True)))
    return found


def cells(line: str) -> list[str]:
    parts = line.strip("|").split("|")
    return list(map(str.strip, parts))
