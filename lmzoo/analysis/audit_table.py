"""What an audit found, as a sheet: what was disturbed, and by how much anything moved."""

from collections.abc import Mapping
from typing import Any

from lmzoo.analysis.formatting import NONE
from lmzoo.analysis.render import Sheet

QUESTIONS = {
    "future": "every later token replaced: the largest change of a score",
    "itself": "the scored token replaced: how far the probabilities of all words are from one",
    "total": "all sequences added up: how far from one",
    "pads": "the padding replaced or lengthened: the largest change of a score",
    "mates": "other sequences in the batch: the largest change of a score",
}


def audited(facts: Mapping[str, Any]) -> Sheet:
    """The sheet of one row of `python -m lmzoo audit --json`."""
    rows = [(text, _number(facts.get(key))) for key, text in QUESTIONS.items()]
    verdict = "; ".join(facts["faults"]) or "passes"
    return Sheet(
        f"{facts['name']}, {facts['score']}: {verdict}",
        ("question", "deviation"),
        rows,
        frozenset({"question"}),
    )


def _number(value: float | None) -> str:
    """The deviation; none where the model makes no such claim."""
    return NONE if value is None else f"{value:.1e}" if value else "0"
