"""The folder of a study's store: one for each study and corpus.

    gru_ablation-captions                    a corpus without a file of its own
    gru_ablation-text-my_sentences-3f9a1c    text:data/my_sentences.txt

The last part is a hash of the path as it is written, because the path is part of the identity of
every run. So two texts with the same file name have two folders, and a text that is edited keeps
its folder.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmzoo.data.corpus import parse_spec

SLUG = 24
"""Longest part of a file's name in the name of a folder."""


def store_folder(storage: Path, study: str, corpus: str | Mapping[str, Any] | None) -> Path:
    """Return the folder of a study's store; no corpus: no point trains a row of the zoo."""
    return storage / (study if corpus is None else store_name(study, corpus))


def store_name(study: str, corpus: str | Mapping[str, Any]) -> str:
    """Return the name of the folder of a study's store."""
    spec = parse_spec(corpus)
    name = f"{study}-{spec['name']}"
    path = spec.get("path")
    if not path:
        return name
    stem = Path(path).name.removesuffix(".gz").partition(".")[0]
    slug = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:SLUG].strip("_")
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:6]
    return "-".join(part for part in (name, slug, digest) if part)
