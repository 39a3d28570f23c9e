"""Open a corpus by name: `captions`, `cath`, `text:PATH`, `fasta:PATH` ..."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmzoo.data.corpus import CORPORA, Corpus


def read_spec(spec: str | Mapping[str, Any]) -> dict[str, Any]:
    """`name`, `name:PATH` or a mapping, as a mapping with `name`."""
    if not isinstance(spec, str):
        return dict(spec)
    name, colon, path = spec.partition(":")
    return {"name": name, "path": path} if colon else {"name": name}


def open_corpus(spec: str | Mapping[str, Any], data_dir: Path | None = None) -> Corpus:
    """Load the corpus that `spec` names.

    Raises:
        UserError: no such corpus, a wrong option, or data that cannot be read.
    """
    return CORPORA.build(CORPORA.read(read_spec(spec)), data_dir).load()
