"""The growth benchmark: ratios to proportion, packed steps, and its chart."""

import json
from math import log

import pytest


def test_a_size_is_compared_with_the_smallest_in_proportion(bench):
    first, below, above = bench("growth").compare(
        "T", {"20": [1.0, 2.0, 1.0], "40": [1.5, 2.0, 9.0], "100": [6.0, 11.0, 4.0]}
    )
    assert (first.median, first.holds) == (1.0, True)
    assert (below.median, below.low, below.high) == (0.75, 0.5, 4.5)
    assert below.holds
    assert above.median == 1.1
    assert not above.holds


def test_packs_of_every_size_train_a_step(bench):
    growth = bench("growth")
    for count in (1, 3):
        losses = growth.packed_step(count)()
        assert len(losses) == count
        assert losses == pytest.approx([log(200)] * count, abs=1.0)


def test_a_chart_is_copied_next_to_the_page(bench, tmp_path):
    growth, publish = bench("growth"), bench("publish")
    page, folder = tmp_path / "page.md", tmp_path / "bench"
    folder.mkdir()
    page.write_text("<!-- bench:growth -->\n<!-- /bench:growth -->\n")
    rows = growth.compare("T", {"20": [1.0], "40": [1.5]})
    (folder / "growth.json").write_text(json.dumps([vars(row) for row in rows]))
    points = [{"growing": "T", "size": size, "time": size} for size in (1, 2)]
    growth.draw(points).save(folder / "growth.svg")
    publish.main(folder, page)
    assert "| T = 40 |" in page.read_text()
    assert (tmp_path / "growth.svg").read_text().startswith("<svg")
