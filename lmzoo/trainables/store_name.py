"""The folder of a study's store: one for each study and corpus.

    gru_ablation-captions                    a corpus without a file of its own
    gru_ablation-text-my_sentences-3f9a1c    text:data/my_sentences.txt

The last part is a hash of the path as it is written, because the path is part of the identity of
every run. So two texts with the same file name have two folders, and a text that is edited keeps
its folder. The hash is also one of `corpus.split` where it is "hash": earlier versions dealt lines
by place, and `--set corpus.split=interleave` continues their stores. Stores of still earlier
versions are called `gru_ablation-text`; such a store is continued if its last sweep had the same
path.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmzoo.data.corpus import parse_spec
from lmzoo.lab.store.open import open_store
from lmzoo.lab.store.records import STUDY, parse_json

SLUG = 24
"""Longest part of a file's name in the name of a folder."""


def store_folder(storage: Path, study: str, corpus: str | Mapping[str, Any] | None) -> Path:
    """Return the folder of a study's store: the one to continue if there is one, else a new one.

    Args:
        storage: Folder of the stores, or the address of a bucket.
        study: Name of the study.
        corpus: Its corpus, as `open_corpus` takes it; None: no point trains a row of the zoo.
    """
    if corpus is None:
        return storage / study
    spec = parse_spec(corpus)
    folder, earlier = storage / store_name(study, spec), storage / f"{study}-{spec['name']}"
    if folder == earlier or open_store(folder).read(STUDY) is not None:
        return folder
    known = _path_of(earlier) if spec.get("split") != "hash" else None
    return earlier if known == spec["path"] else folder


def describe_earlier(storage: Path, study: str, corpus: str | Mapping[str, Any] | None) -> str:
    """Return a line about the runs of an earlier version on the same text; "" if there are none.

    Its lines were dealt by place, so a new sweep does not continue it.
    """
    if corpus is None:
        return ""
    spec = dict(parse_spec(corpus))
    if spec.pop("split", "") != "hash" or open_store(storage / store_name(study, corpus)).read(
        STUDY
    ):
        return ""
    folder = store_folder(storage, study, spec)
    if open_store(folder).read(STUDY) is None:
        return ""
    return (
        f"{folder} has runs of an earlier version, which split this text by place; to continue "
        "them, add --set corpus.split=interleave"
    )


def store_name(study: str, corpus: str | Mapping[str, Any]) -> str:
    """Return the name of the folder of a study's store."""
    spec = parse_spec(corpus)
    name = f"{study}-{spec['name']}"
    path = spec.get("path")
    if not path:
        return name
    stem = Path(path).name.removesuffix(".gz").partition(".")[0]
    slug = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:SLUG].strip("_")
    dealt = f"\n{spec['split']}" if spec.get("split") == "hash" else ""
    digest = hashlib.sha256(f"{path}{dealt}".encode()).hexdigest()[:6]
    return "-".join(part for part in (name, slug, digest) if part)


def _path_of(store: Path) -> str | None:
    """Return the path of the text of the last sweep in a store; None if there is none."""
    study = parse_json(open_store(store).read(STUDY))
    asked = study.get("asked") if isinstance(study, dict) else None
    if not isinstance(asked, dict):
        return None
    fields = asked.get("fields") or {}
    return fields.get("corpus.path") or parse_spec(asked.get("corpus") or "").get("path")
