"""The rows of the zoo: everything that `lmzoo list` shows and `lmzoo describe` explains.

Most rows are presets: a registered model with some config fields set. A row without a model (a
technique, a diagnostic, a decoder) is listed and described, but cannot be built.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmzoo.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Row:
    """One entry of `lmzoo list`."""

    name: str
    family: str
    """count, ngram, latent-markov, slot, recurrent, attention, vae, ..., or technique."""
    source: str
    """Author, year and arXiv id of the publication, or the source document."""
    summary: str
    document: str = ""
    """The source documents that contain it ("S0", "S0, S3"; see docs/sources.md), or ""."""
    aliases: tuple[str, ...] = ()
    """Its names in the source documents ("DLM46"), accepted wherever a row name is."""
    score: str = ""
    """The `contract.Score` of the model; "" for a row without a model."""
    model: str | None = None
    """Name of the registered model, or None."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Config fields that differ from the model's defaults."""


ROWS: Registry[Row] = Registry("row of the zoo")


def preset(name: str, *, model: str, fields: Mapping[str, Any], **rest: Any) -> Row:
    """Register a row: `model` with `fields` set. `rest` holds the other fields of `Row`."""
    return ROWS.add(name, Row(name=name, model=model, fields=fields, **rest))


def technique(
    name: str, *, source: str, summary: str, document: str = "", family: str = "technique"
) -> Row:
    """Register a row without a model, in the file that implements it."""
    row = Row(name=name, family=family, document=document, source=source, summary=summary)
    return ROWS.add(name, row)
