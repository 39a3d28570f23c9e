"""The page of width transfer says which rate is best at which width."""

from pathlib import Path

import pytest
from rates import rate_report

PAGES = Path(__file__).parents[2] / "docs/results"


def best_rates(name: str) -> dict[str, str]:
    """Return the best rate of each point of a recorded study."""
    report = rate_report(PAGES / f"records/{name}-captions.parquet")
    (table,) = report.tables
    return {point: rate for point, *_, rate in table.rows}


def test_one_rate_is_nearly_the_best_at_every_width_with_mup():
    report = rate_report(PAGES / "records/widths_mup-captions.parquet")
    (table,) = report.tables
    place = table.header.index("0.03")
    for row in table.rows:
        losses = list(map(float, row[1:-1]))
        assert float(row[place]) - min(losses) < 0.01


@pytest.mark.parametrize(("cell", "factor"), [("tanh", 6.3), ("GRU", 6.3), ("minGRU", 3.0)])
def test_the_best_rate_falls_without_mup(cell, factor):
    found = best_rates("widths_standard")
    narrow = float(found[f"{cell} E=32"])
    wide = float(found[f"{cell} E=256"])
    assert round(narrow / wide, 1) == factor


def test_the_page_says_how_far_the_rate_falls():
    page = (PAGES / "transfer.md").read_text(encoding="utf-8")
    # Its lines may be broken anywhere.
    words = " ".join(page.split())
    assert "by a factor of 3.0 for minGRU and of 6.3 for two cells" in words
