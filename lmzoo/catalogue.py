"""The rows of the zoo: a name a user may type, and what stands behind it.

Most rows are presets: a registered model with some fields set. A row without a model
(a technique, a diagnostic, a decoder) is listed and described, not built.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmzoo.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Row:
    """One entry of `python -m lmzoo list`."""

    name: str
    family: str
    """count, ngram, latent-markov, slot, recurrent, attention, vae, ... or technique."""
    source: str
    """Author, year and arXiv id of the publication, or the source document."""
    summary: str
    document: str = ""
    """The source documents that contain it ("S0", "S0, S3"; see docs/sources.md), or ""."""
    aliases: tuple[str, ...] = ()
    """Its names in the source documents ("DLM46"), accepted wherever a row name is."""
    score: str = ""
    """The kind of number `log_prob` is; empty where nothing is scored."""
    model: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What the preset sets over the model's defaults."""


ROWS: Registry[Row] = Registry("row of the zoo")


def preset(name: str, *, model: str, fields: Mapping[str, Any], **rest: Any) -> Row:
    """Register `model` with `fields` set as a row of its own."""
    return ROWS.add(name, Row(name=name, model=model, fields=fields, **rest))


def technique(
    name: str, *, source: str, summary: str, document: str = "", family: str = "technique"
) -> Row:
    """Register a part that models are made of, in the file that holds it; it is not built alone."""
    row = Row(name=name, family=family, document=document, source=source, summary=summary)
    return ROWS.add(name, row)
