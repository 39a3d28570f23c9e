"""Sentences of the results pages: a verdict or a bound that a page states is that of its record."""

from pathlib import Path

import pytest

from lmzoo.analysis.tables.ranking_table import study_ranking
from lmzoo.analysis.text.verdict_lines import verdict_text

PAGES = Path(__file__).parents[3] / "docs/results"
CLAIMS = [
    ("reference", "differs from the wild\ntype by less than 0.02", "reference-words",
     {"cut gate_bias (2)": "negligible", "cut input_to_gate (0)": "negligible",
      "cut candidate_bias (5)": "negligible", "cut state_to_gate (1)": "negligible"}),
    ("reference", "the carry costs 0.009 nats, the MGRU\n0.008", "reference-proteins",
     {"cut carry (6)": (0.007, 0.011), "MGRU": (0.006, 0.010)}),
    ("modern_cells", "undecided (−0.006 to +0.058 nats)", "modern_gla-text",
     {"cut vector": (-0.006, 0.058)}),
    ("modern_cells", "RetNet is better without its norm", "modern_retnet-text",
     {"cut norm": "better (size open)"}),
    ("modern_cells_more", "the LRU without its phase (0.02 to 0.06 nats)", "modern_lru-captions",
     {"cut phase": (-0.058, -0.021)}),
    ("modern_cells_more", "its forget gate (0.01 to 0.04)", "modern_slstm-captions",
     {"cut forget_gate": (-0.039, -0.008)}),
    ("latents", "is undecided (0.02 to\n0.16 nats)", "mixtures-captions",
     {"latent CRF, two tokens": (-0.158, -0.019)}),
]  # fmt: skip


@pytest.mark.parametrize(("page", "sentence", "record", "rows"), CLAIMS)
def test_a_sentence_is_that_of_its_record(page, sentence, record, rows):
    assert sentence in (PAGES / f"{page}.md").read_text(encoding="utf-8")
    frame = study_ranking(PAGES / f"records/{record}.parquet").frame
    known = {row["label"]: row for row in frame.to_dicts()}
    for label, claim in rows.items():
        row = known[label]
        if isinstance(claim, str):
            assert verdict_text(row) == claim
        else:
            ends = (row["difference_low"], row["difference_high"])
            assert ends == pytest.approx(claim, abs=0.0016)


def test_the_five_gram_beats_every_modern_cell_on_shakespeare():
    text = (PAGES / "modern_cells.md").read_text(encoding="utf-8")
    assert "better than every cell of this page on Shakespeare, by 0.38 nats or more" in text
    for cell in ("gla", "gated_deltanet", "hgrn2", "retnet"):
        frame = study_ranking(PAGES / f"records/modern_{cell}-text.parquet").frame
        assert set(frame["kn5"].drop_nulls()) == {"loses"}
        assert frame["kn5_difference"].drop_nulls().min() > 0.375


COLUMNS = {
    "MGRU {4;6}": "MGRU squash=sigmoid (4) + gate=output=centred (6)",
    "MGRU": "MGRU", "tanh RNN": "tanh", "GRU": "GRU", "LSTM": "LSTM",
}  # fmt: skip
TEXTS = {
    "Multi30k, words": "words", "Multi30k, characters": "characters",
    "Shakespeare, characters": "shakespeare", "Proteins": "proteins",
}  # fmt: skip


def table(page: str, first: str) -> list[dict[str, str]]:
    """The rows of the table whose first heading is this one."""
    lines = page[page.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rows]


def cell(record: str, label: str) -> tuple[str, str]:
    """Difference and verdict as the page writes them."""
    frame = study_ranking(PAGES / f"records/{record}.parquet").frame
    row = next(row for row in frame.to_dicts() if row["label"] == label)
    half = (row["difference_high"] - row["difference_low"]) / 2
    return f"{row['difference']:+.3f} ±{half:.3f}".replace("-", "−"), verdict_text(row)


def test_the_tables_of_claims_are_those_of_the_records():
    page = (PAGES / "claims.md").read_text(encoding="utf-8")
    for row in table(page, "data"):
        for heading, label in COLUMNS.items():
            assert row[heading] == cell(f"reference-{TEXTS[row['data']]}", label)[0]
    cuts = table(page, "cut")
    assert len(cuts) == 5
    for row in cuts:
        number, name = row["cut"].replace("`", "").split()
        got = cell("reference-words", f"cut {name} ({number})")
        assert (row["words, S0's size"], row["verdict"]) == got


def test_two_seeds_do_not_show_that_a_mutant_beats_the_five_gram():
    text = (PAGES / "factorial.md").read_text(encoding="utf-8")
    assert "No mutant is shown to beat the Kneser-Ney 5-gram" in text
    assert "eight are shown to lose" in text
    words = study_ranking(PAGES / "records/reference-mutants.parquet").frame["kn5"].to_list()
    assert "wins" not in words
    assert words.count("loses") == 8
