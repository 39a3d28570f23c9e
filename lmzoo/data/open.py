"""Open a corpus by name: `captions`, `cath`, `text:PATH`, `fasta:PATH` ..."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmzoo.data.corpus import CORPORA, Corpus


def parse_spec(spec: str | Mapping[str, Any]) -> dict[str, Any]:
    """Convert `NAME`, `NAME:PATH` or a mapping to a mapping that has `name`."""
    if not isinstance(spec, str):
        return dict(spec)
    name, colon, path = spec.partition(":")
    return {"name": name, "path": path} if colon else {"name": name}


def open_corpus(spec: str | Mapping[str, Any], data_dir: Path | None = None) -> Corpus:
    """Load the corpus that `spec` names.

    Args:
        spec: `NAME`, `NAME:PATH`, or a mapping of `name` and config fields.
        data_dir: Folder of the corpus files. None downloads them if the corpus needs files.

    Raises:
        UserError: The corpus is unknown, an option is invalid, or the data cannot be read.
    """
    return CORPORA.build(CORPORA.parse(parse_spec(spec)), data_dir).load()
