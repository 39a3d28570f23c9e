"""A loss below the known entropy of its source is an alarm."""

import polars as pl
import pytest

from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.ranking_table import ranking_report
from lmzoo.lab.statistics.entropy_floor import is_impossible
from tests.lab.analysis.recorded import folder_of, frame_of


@pytest.mark.parametrize(
    ("loss", "floor", "vocab", "sequences", "expected"),
    [
        (1.059, 1.487, 251, 1000, True),  # a leak of chunks of 16 tokens, on captions
        (1.30, 1.487, 251, 1000, False),  # a test split of easy sentences would explain it
        (1.30, 1.487, 251, 10_000, True),
        (1.5, 1.487, 251, 10_000, False),
        (0.5, None, 251, 1000, False),
        (0.5, 1.487, 251, None, False),
    ],
)
def test_what_a_test_split_explains(loss, floor, vocab, sequences, expected) -> None:
    assert is_impossible(loss, floor, vocab, sequences) == expected


def test_a_ranking_warns_of_an_impossible_loss_only() -> None:
    folder = folder_of("gru_ablation-captions")
    assert not frame_of("gru_ablation-captions")["marks"].list.contains("impossible").any()
    runs = folder.runs.with_columns(floor_token=pl.lit(3.0))
    frame = rank_points(runs, folder.events, folder.study)
    marked = frame.filter(pl.col("marks").list.contains("impossible"))
    assert len(marked) > 0
    assert marked["high"].max() < 3.0
    report = ranking_report(folder, frame)
    assert any(line.startswith("WARNING: below the entropy") for line in report.heading)
    assert any(line.startswith("impossible: ") for line in report.legend)
