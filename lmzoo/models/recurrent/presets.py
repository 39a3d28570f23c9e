"""The seed's recurrent rows: a cell, an emission and a normaliser each.

Where the seed says "on the sphere" the normaliser is `rms`; the published, leaking
`time_std` is one field away (`--set model.norm=time_std`). zoo.md 2.
"""

from collections.abc import Mapping
from typing import Any

from lmzoo.catalogue import preset

_PLAIN: Mapping[str, Any] = {"emission": "vector", "norm": "none"}
_SPHERE: Mapping[str, Any] = {"emission": "vector", "norm": "rms"}
_MIXTURE: Mapping[str, Any] = {"emission": "mixture", "norm": "rms"}


def _row(
    name: str,
    aliases: tuple[str, ...],
    cell: str,
    head: Mapping[str, Any],
    summary: str,
    source: str,
    document: str = "S0",
) -> None:
    preset(
        name, model="recurrent_lm", fields={"cell": cell, **head}, family="recurrent",
        aliases=aliases, score="exact", document=document, source=source, summary=summary,
    )  # fmt: skip


_row(
    "rnn_lm", ("DLM11",), "rnn", _PLAIN, "Tanh RNN, tied softmax, no normaliser.", "Elman 1990; S0"
)
_row(
    "lstm_lm", ("DLM12",), "lstm", _PLAIN, "LSTM, tied softmax, no normaliser.",
    "Hochreiter & Schmidhuber 1997; S0, S3", document="S0, S3",
)  # fmt: skip
_row("lstm_lm_sphere", ("DLM23",), "lstm", _SPHERE, "LSTM on the sphere, tied softmax.", "S0")
_row("lstm_mixture", ("DLM26",), "lstm", _MIXTURE, "LSTM with mixture emission.", "S0")
_row("rnn_mixture", ("DLM29",), "rnn", _MIXTURE, "Tanh RNN with mixture emission.", "S0")
_row(
    "gru_lm_sphere", ("DLM43",), "gru", _SPHERE, "GRU on the sphere, tied softmax.",
    "Cho et al. 2014 (arXiv:1406.1078); S0",
)  # fmt: skip
_row(
    "gru_mixture", ("DLM44", "DLM45"), "gru", _MIXTURE, "GRU with mixture emission.",
    "Cho et al. 2014 (arXiv:1406.1078); S0",
)  # fmt: skip
_row(
    "mutable_mgu_mixture", ("DLM46",), "mgu", _MIXTURE,
    "Minimal gated unit, eight paths that may be cut, mixture emission.",
    "Zhou et al. 2016 (arXiv:1603.09420); S0",
)  # fmt: skip
_row(
    "mutable_mgru_mixture", ("DLM47",), "mgru", _MIXTURE,
    "Minimal gated recurrent unit, twelve switches, mixture emission.", "S0",
)  # fmt: skip
