"""Rows with a tied softmax whose cell has a matrix as state, or is in a residual block."""

from collections.abc import Mapping
from typing import Any

from lmzoo.base.registry import preset

_BARE: Mapping[str, Any] = {
    "name": "block",
    "inner": {"name": "gated_deltanet"},
    "cuts": ["convolution", "output_gate"],
}
"""Gated DeltaNet has a convolution and an output gate of its own."""

for _name, _cell, _source, _summary in (
    (
        "retnet", "retention", "Sun et al. 2023 (arXiv:2307.08621)",
        "Retention: linear attention with a fixed decay per head.",
    ),
    (
        "gla", "gla", "Yang et al. 2024 (arXiv:2312.06635)",
        "Gated linear attention: the decay of each key channel reads the token.",
    ),
    (
        "mamba", "mamba", "Gu & Dao 2023 (arXiv:2312.00752)",
        "Selective state space with a decay per channel and state.",
    ),
    (
        "mamba2", "mamba2", "Dao & Gu 2024 (arXiv:2405.21060)",
        "Selective state space with a decay per head.",
    ),
    (
        "mamba3", "mamba3", "Lahoti et al. 2026 (arXiv:2603.15569)",
        "Selective state space with a trapezoidal step and a state that turns.",
    ),
    (
        "deltanet", "deltanet", "Yang et al. 2024 (arXiv:2406.06484)",
        "Linear attention that replaces the value stored under a key.",
    ),
    (
        "gated_deltanet", "gated_deltanet", "Yang et al. 2025 (arXiv:2412.06464)",
        "DeltaNet with a decay that reads the token, and an output gate.",
    ),
    (
        "deltaproduct", "deltaproduct", "Siems et al. 2025 (arXiv:2502.10297)",
        "Gated DeltaNet with several steps of the memory per token.",
    ),
    (
        "kda", "kda", "Kimi Team 2025 (arXiv:2510.26692)",
        "Kimi Delta Attention: gated DeltaNet with a decay per key channel.",
    ),
    (
        "m2rnn", "m2rnn", "Mishra et al. 2026 (arXiv:2603.14360)",
        "Tanh recurrence with a matrix as state and a forget gate.",
    ),
    (
        "mlstm", "mlstm", "Beck et al. 2024 (arXiv:2405.04517)",
        "LSTM with exponential gates and a matrix as memory (xLSTM).",
    ),
    (
        "rwkv7", "rwkv7", "Peng et al. 2025 (arXiv:2503.14456)",
        "Generalised delta rule with a decay and a rate per channel.",
    ),
    (
        "griffin", "griffin", "De et al. 2024 (arXiv:2402.19427)",
        "RG-LRU between linear maps, with a short convolution and an output gate.",
    ),
    (
        "min_gru_block", "block", "Feng et al. 2024 (arXiv:2410.01201)",
        "Minimal GRU in a block: short convolution, output gate, norm, feed-forward part.",
    ),
    (
        "gated_deltanet_block", _BARE, "Yang et al. 2025 (arXiv:2412.06464)",
        "Gated DeltaNet with norms, residuals and a feed-forward part.",
    ),
):  # fmt: skip
    preset(
        _name, model="recurrent_lm", fields={"cell": _cell, "emission": "vector", "norm": "none"},
        family="recurrent", score="exact", source=_source, summary=_summary,
    )  # fmt: skip
