"""Rows that are a Transformer decoder with some fields set. zoo.md 2, 4.1, 4.3.

GPT is pre-LN with learned positions, tanh-GELU and an untied head, weights N(0, 0.02²), those that
write into the residual stream less; the mixture emission of DLM41 keeps its own U(K).
The published code drew the token table anew with 1e-5; that is not repeated.
"""

from collections.abc import Mapping
from typing import Any

from lmzoo.catalogue import preset

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
    "gpt", "S0, S3", {**_GPT, "tied": False}, "Minimal GPT: pre-LN, untied head.",
    "Radford et al. 2019; Karpathy 2020 (minGPT); S0", "DLM40",
)  # fmt: skip
_row(
    "gpt_mixture", "S0", {**_GPT, "emission": "mixture"}, "GPT with mixture emission.", "S0",
    "DLM41",
)  # fmt: skip
_row(
    "transformer_decoder_preln", "S3", {"norm": "pre"},
    "Transformer decoder with LayerNorm before each part.",
    "Xiong et al. 2020 (arXiv:2002.04745); S3",
)  # fmt: skip
_row(
    "qk_norm_attention", "S1",
    {"norm": "pre", "attention": {"normed": "both", "learned": True}},
    "Decoder whose attention no vector norm can change.",
    "Henry et al. 2020 (arXiv:2010.04245); S1",
)  # fmt: skip
_row(
    "hard_attention", "S1",
    {"norm": "pre", "attention": {"normed": "both", "pick": "argmax"}},
    "Decoder whose heads each take one value, the limit of a large temperature.", "S1",
)  # fmt: skip
