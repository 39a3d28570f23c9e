"""Rows of the later seeds: a cell or an emission each.

S1, S2, S3, S4; zoo.md 4.1 to 4.4.
"""

from collections.abc import Mapping
from typing import Any

from lmzoo.catalogue import preset


def _row(
    name: str,
    document: str,
    source: str,
    summary: str,
    cell: Mapping[str, Any],
    *,
    family: str = "recurrent",
) -> None:
    preset(
        name, model="recurrent_lm", fields={"cell": cell, "emission": "vector", "norm": "none"},
        family=family, score="exact", document=document, source=source, summary=summary,
    )  # fmt: skip


_row(
    "rnn_vanilla", "S3", "Elman 1990", "RNN whose activation may be chosen; as it stands, rnn_lm.",
    {"name": "rnn"},
)  # fmt: skip
_row(
    "lstm_peephole", "S3", "Gers & Schmidhuber 2000", "LSTM whose gates look at the cell.",
    {"name": "lstm_peephole"},
)  # fmt: skip
_row(
    "lstm_coupled", "S3", "Greff et al. 2015 (arXiv:1503.04069)",
    "LSTM that forgets as much as it writes, f = 1 − i.", {"name": "lstm", "forget": "coupled"},
)  # fmt: skip
_row(
    "lstm_no_forget", "S4", "Hochreiter & Schmidhuber 1997", "LSTM without forget gate, f = 1.",
    {"name": "lstm", "forget": "none"}, family="technique",
)  # fmt: skip
_row(
    "gru", "S3, S4", "Cho et al. 2014 (arXiv:1406.1078)",
    "GRU of the library; its reset and update conventions may be chosen.", {"name": "gru"},
)  # fmt: skip

preset(
    "hamming_emission", model="recurrent_lm",
    fields={"cell": "lstm", "emission": "hamming", "norm": "none"}, family="emission",
    score="exact", document="S1", source="S1",
    summary="LSTM whose words are codes: mismatching groups are counted.",
)  # fmt: skip

_row(
    "gated_feedback_rnn", "S2", "Chung et al. 2015 (arXiv:1502.02367)",
    "Stacked tanh layers, each reading all through gates.", {"name": "gated_feedback"},
)  # fmt: skip
_row(
    "gated_feedback_lstm", "S2", "Chung et al. 2015 (arXiv:1502.02367)",
    "Stacked LSTMs, each reading all through gates.", {"name": "gated_feedback", "unit": "lstm"},
)  # fmt: skip
_row(
    "gated_feedback_gru", "S2", "Chung et al. 2015 (arXiv:1502.02367)",
    "Stacked GRUs, each reading all through gates.", {"name": "gated_feedback", "unit": "gru"},
)  # fmt: skip
_row(
    "hm_lstm", "S2", "Chung et al. 2017 (arXiv:1609.01704)",
    "Stacked LSTMs that find the boundaries of their segments, at a constant slope.",
    {"name": "hm_lstm"},
)  # fmt: skip
_row(
    "grid_lstm", "S2", "Kalchbrenner et al. 2016 (arXiv:1507.01526)",
    "LSTMs along time and along depth.", {"name": "grid_lstm"},
)  # fmt: skip
