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
    seed: str
    """The seed document that asks for it (S0..S4)."""
    source: str
    """Author, year and arXiv id, or the seed itself."""
    summary: str
    ids: tuple[str, ...] = ()
    """The seed's own names for it, accepted wherever a name is."""
    score: str = ""
    """The kind of number `log_prob` is; empty where nothing is scored."""
    model: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What the preset sets over the model's defaults."""


ROWS: Registry[Row] = Registry("row of the zoo")


def preset(name: str, *, model: str, fields: Mapping[str, Any], **rest: Any) -> Row:
    """Register `model` with `fields` set as a row of its own."""
    return ROWS.add(name, Row(name=name, model=model, fields=fields, **rest))


def technique(name: str, *, seed: str, source: str, summary: str, family: str = "technique") -> Row:
    """Register a part that models are made of, in the file that holds it; it is not built alone."""
    return ROWS.add(name, Row(name=name, family=family, seed=seed, source=source, summary=summary))
