"""The page of width transfer says which rate is best at which width."""

from pathlib import Path

from rates import rate_report

PAGES = Path(__file__).parents[2] / "docs/results"


def best_rates(name: str) -> dict[str, str]:
    """Return the best rate of each point of a recorded study."""
    [table] = rate_report(PAGES / f"records/{name}-captions.parquet").tables
    return {row[0]: row[-1] for row in table.rows}


def test_the_best_rate_carries_with_mup_and_falls_without():
    assert set(best_rates("widths_mup").values()) == {"0.07536"}
    found = best_rates("widths_standard")
    for cell, factor in {"tanh": 7.5, "GRU": 2.5, "minGRU": 2.5}.items():
        narrow = float(found[f"{cell} E=32"])
        wide = float(found[f"{cell} E=256"])
        assert round(narrow / wide, 1) == factor
    page = " ".join((PAGES / "transfer.md").read_text(encoding="utf-8").split())
    assert "by a factor of 2.5 for two cells and of 7.5 for the tanh RNN" in page
