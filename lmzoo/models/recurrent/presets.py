"""Rows that are a recurrent language model (`recurrent_lm.py`) with some fields set.

Where S0 says "on the unit sphere", N is `rms`. The S0 code divides inputs by their standard
deviation over time, which leaks the future: `--set model.norm=time_std` reproduces it.
"""

from collections.abc import Mapping
from typing import Any

from lmzoo.base.registry import preset

Fields = Mapping[str, Any]

_PLAIN: Fields = {"emission": "vector", "norm": "none"}
_NORMALISED: Fields = {"emission": "vector", "norm": "rms"}
_MIXTURE: Fields = {"emission": "mixture", "norm": "rms"}

_LSTM = "Hochreiter & Schmidhuber 1997"
_GRU = "Cho et al. 2014 (arXiv:1406.1078)"
_GATED_FEEDBACK = "Chung et al. 2015 (arXiv:1502.02367)"


def _row(
    name: str,
    cell: str | Fields,
    head: Fields,
    document: str,
    source: str,
    summary: str,
    *aliases: str,
    family: str = "recurrent",
) -> None:
    preset(
        name, model="recurrent_lm", fields={"cell": cell, **head}, family=family,
        aliases=aliases, score="exact", document=document, source=source, summary=summary,
    )  # fmt: skip


_row("rnn_lm", "rnn", _PLAIN, "S0", "Elman 1990; S0", "Tanh RNN with a tied softmax.", "DLM11")
_row("lstm_lm", "lstm", _PLAIN, "S0, S3", f"{_LSTM}; S0, S3", "LSTM with a tied softmax.", "DLM12")
_row(
    "lstm_lm_sphere", "lstm", _NORMALISED, "S0", "S0",
    "LSTM with normalised inputs and outputs, tied softmax.", "DLM23",
)  # fmt: skip
_row("lstm_mixture", "lstm", _MIXTURE, "S0", "S0", "LSTM with mixture emission.", "DLM26")
_row("rnn_mixture", "rnn", _MIXTURE, "S0", "S0", "Tanh RNN with mixture emission.", "DLM29")
_row(
    "gru_lm_sphere", "gru", _NORMALISED, "S0", f"{_GRU}; S0",
    "GRU with normalised inputs and outputs, tied softmax.", "DLM43",
)  # fmt: skip
_row(
    "gru_mixture", "gru", _MIXTURE, "S0", f"{_GRU}; S0", "GRU with mixture emission.",
    "DLM44", "DLM45",
)  # fmt: skip
_row(
    "mutable_mgu_mixture", "mgu", _MIXTURE, "S0", "Zhou et al. 2016 (arXiv:1603.09420); S0",
    "Minimal gated unit with eight paths that can be cut, mixture emission.", "DLM46",
)  # fmt: skip
_row(
    "mutable_mgru_mixture", "mgru", _MIXTURE, "S0", "S0",
    "Minimal gated recurrent unit with twelve switches, mixture emission.", "DLM47",
)  # fmt: skip

_row(
    "rnn_vanilla", {"name": "rnn"}, _PLAIN, "S3", "Elman 1990",
    "RNN whose activation function can be set; the default is the same as rnn_lm.",
)  # fmt: skip
_row(
    "lstm_peephole", {"name": "lstm_peephole"}, _PLAIN, "S3", "Gers & Schmidhuber 2000",
    "LSTM whose gates also read the cell state.",
)  # fmt: skip
_row(
    "lstm_coupled", {"name": "lstm", "forget": "coupled"}, _PLAIN, "S3",
    "Greff et al. 2015 (arXiv:1503.04069)", "LSTM with a coupled forget gate, f = 1 − i.",
)  # fmt: skip
_row(
    "lstm_no_forget", {"name": "lstm", "forget": "none"}, _PLAIN, "S4", _LSTM,
    "LSTM without a forget gate, f = 1.", family="technique",
)  # fmt: skip
_row(
    "gru", {"name": "gru"}, _PLAIN, "S3, S4", _GRU,
    "GRU whose reset and update conventions can be set; the default is PyTorch's.",
)  # fmt: skip
_row(
    "ugrnn", {"name": "gru", "cuts": ["reset"]}, _PLAIN, "",
    "Collins et al. 2017 (arXiv:1611.09913)", "Update gate RNN: a GRU without the reset gate.",
)  # fmt: skip
_row(
    "janet", {"name": "janet"}, _PLAIN, "", "van der Westhuizen & Lasenby 2018 (arXiv:1804.04849)",
    "LSTM with the forget gate alone.",
)  # fmt: skip
for _variant in (1, 2, 3):
    _row(
        f"mut{_variant}", {"name": "mut", "variant": _variant}, _PLAIN, "",
        "Jozefowicz et al. 2015 (http://proceedings.mlr.press/v37/jozefowicz15.html)",
        f"MUT{_variant}, a unit with two gates from a search by mutation.",
    )  # fmt: skip
_row(
    "hamming_emission", "lstm", {"emission": "hamming", "norm": "none"}, "S1", "S1",
    "LSTM whose emission counts mismatching groups of token codes.", family="emission",
)  # fmt: skip
_row(
    "rbf_emission", "lstm", {"emission": "rbf", "norm": "none"}, "S1",
    "Broomhead & Lowe 1988; S1",
    "LSTM whose emission prefers tokens with embeddings near the context.", family="emission",
)  # fmt: skip
_row(
    "gated_feedback_rnn", {"name": "gated_feedback"}, _PLAIN, "S2", _GATED_FEEDBACK,
    "Stacked tanh RNNs in which each layer reads all layers through gates.",
)  # fmt: skip
_row(
    "gated_feedback_lstm", {"name": "gated_feedback", "unit": "lstm"}, _PLAIN, "S2",
    _GATED_FEEDBACK, "Stacked LSTMs in which each layer reads all layers through gates.",
)  # fmt: skip
_row(
    "gated_feedback_gru", {"name": "gated_feedback", "unit": "gru"}, _PLAIN, "S2",
    _GATED_FEEDBACK, "Stacked GRUs in which each layer reads all layers through gates.",
)  # fmt: skip
_row(
    "hm_lstm", {"name": "hm_lstm"}, _PLAIN, "S2", "Chung et al. 2017 (arXiv:1609.01704)",
    "Hierarchical multiscale LSTM: stacked LSTMs with learned segment boundaries.",
)  # fmt: skip
_row(
    "grid_lstm", {"name": "grid_lstm"}, _PLAIN, "S2", "Kalchbrenner et al. 2016 (arXiv:1507.01526)",
    "Grid LSTM: LSTMs along time and along depth.",
)  # fmt: skip

_MIN = "Feng et al. 2024 (arXiv:2410.01201)"
for _name, _source, _summary in (
    ("min_gru", _MIN, "Minimal GRU: gate and candidate read the token only; a parallel scan."),
    ("min_lstm", _MIN, "Minimal LSTM: two normalised gates that read the token only."),
    ("qrnn", "Bradbury et al. 2017 (arXiv:1611.01576)", "Gated pooling of a causal convolution."),
    ("sru", "Lei et al. 2018 (arXiv:1709.02755)", "Elementwise recurrence with a highway."),
    ("lru", "Orvieto et al. 2023 (arXiv:2303.06349)", "Diagonal complex linear recurrence."),
    (
        "rg_lru", "De et al. 2024 (arXiv:2402.19427)",
        "Diagonal recurrence whose decay and input are gated by the token (Griffin).",
    ),
    (
        "hgrn2", "Qin et al. 2024 (arXiv:2404.07904)",
        "Linear recurrence with a matrix as state and bounded decays by row.",
    ),
    (
        "slstm", "Beck et al. 2024 (arXiv:2405.04517)",
        "LSTM with exponential gates and a normaliser state (xLSTM).",
    ),
):  # fmt: skip
    _row(_name, _name, _PLAIN, "", _source, _summary)
