"""Rows that are a Transformer decoder (`transformer_decoder.py`) with some fields set.

GPT has pre-LN layers, learned positions, tanh-GELU, an untied head and weights from N(0, 0.02²),
smaller for maps that write into the residual stream. The mixture emission of DLM41 keeps its own
initial weights, U(K). The S0 code redraws the token table with standard deviation 1e-5; this
package does not.
"""

from collections.abc import Mapping
from typing import Any

from lmzoo.base.registry import preset

_GPT: Mapping[str, Any] = {
    "norm": "pre",
    "positions": "learned",
    "activation": "gelu",
    "spread": 0.02,
}


def _row(
    name: str, document: str, fields: Mapping[str, Any], summary: str, source: str, *aliases: str
) -> None:
    preset(
        name, model="transformer_decoder", fields=fields, family="attention", aliases=aliases,
        score="exact", document=document, source=source, summary=summary,
    )  # fmt: skip


_row(
    "gpt", "S0, S3", {**_GPT, "tied": False}, "Minimal GPT: pre-LN decoder with an untied head.",
    "Radford et al. 2019; Karpathy 2020 (minGPT); S0", "DLM40",
)  # fmt: skip
_row(
    "gpt_mixture", "S0", {**_GPT, "emission": "mixture"}, "GPT with mixture emission.", "S0",
    "DLM41",
)  # fmt: skip
_row(
    "transformer_decoder_preln", "S3", {"norm": "pre"},
    "Transformer decoder with LayerNorm before each sublayer.",
    "Xiong et al. 2020 (arXiv:2002.04745); S3",
)  # fmt: skip
_row(
    "qk_norm_attention", "S1",
    {"norm": "pre", "attention": {"normed": "both", "learned": True}},
    "Transformer decoder with normalised queries and keys.",
    "Henry et al. 2020 (arXiv:2010.04245); S1",
)  # fmt: skip
_row(
    "hard_attention", "S1",
    {"norm": "pre", "attention": {"normed": "both", "pick": "argmax"}},
    "Transformer decoder whose heads each attend to one position only.", "S1",
)  # fmt: skip
_row(
    "relative_attention", "", {"positions": "none", "relative": "both"},
    "Transformer decoder with learned vectors for distances instead of positions.",
    "Shaw et al. 2018 (arXiv:1803.02155)",
)  # fmt: skip
_row(
    "local_attention", "", {"norm": "pre", "window": 8},
    "Transformer decoder whose positions attend to a local window.",
    "Child et al. 2019 (arXiv:1904.10509)",
)  # fmt: skip
_row(
    "sparse_attention", "", {"norm": "pre", "positions": "learned", "window": 4, "stride": 4},
    "Transformer decoder with strided sparse attention.",
    "Child et al. 2019 (arXiv:1904.10509)",
)  # fmt: skip
