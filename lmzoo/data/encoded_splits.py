"""Encode the three splits of a contiguous text with one tokeniser.

The vocabulary is that of the training split. Long texts are encoded once and then read from the
cache (`id_cache.py`); texts below `CACHED_FROM` bytes are encoded in less time than the cache would
save.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch
from jaxtyping import Integer
from torch import Tensor

from lmzoo.base.config import to_dict
from lmzoo.base.errors import UserError
from lmzoo.data.corpus import token_dtype
from lmzoo.data.id_cache import CACHED_FROM, Encoded, cached_ids
from lmzoo.data.text_facts import TextFacts, read_facts
from lmzoo.data.text_size import TextSize, count_words
from lmzoo.data.tokenisers import new_tokeniser
from lmzoo.data.tokenisers.base import Tokeniser, TokeniserConfig, cut_stretches
from lmzoo.data.vocabulary import Vocabulary

SPLITS = ("training", "validation", "test")

Texts = tuple[memoryview, memoryview, memoryview]
"""The bytes that train, validate and test, in UTF-8."""


@dataclass(frozen=True)
class EncodedSplits:
    """The ids of the three splits, their vocabulary and the size of the test text."""

    train: Integer[Tensor, "n"]
    valid: Integer[Tensor, "m"]
    test: Integer[Tensor, "k"]
    vocabulary: Vocabulary
    test_text: TextSize
    facts: TextFacts | None


def encode_splits(
    name: str, texts: Texts, config: Any, facts_of: Callable[[], TextFacts | None]
) -> EncodedSplits:
    """Encode the splits of corpus `name`; `config` has the fields of a `TokeniserConfig`.

    `facts_of` returns the facts of a user's text, which are cached with its ids.

    Raises:
        UserError: A text is not UTF-8, or the tokeniser does not keep it.
    """
    tokeniser = new_tokeniser(config)

    def encode() -> Encoded:
        try:
            ids, facts = _encode(name, texts, tokeniser)
        except UnicodeDecodeError:
            raise _not_utf8(name, texts) from None
        found = facts_of()
        return ids, {**facts, "text": found and dataclasses.asdict(found)}

    if sum(map(len, texts)) < CACHED_FROM:
        ids, facts = encode()
    else:
        ids, facts = cached_ids(
            {**_settings(config), **dict(zip(SPLITS, texts, strict=True))}, encode
        )
    tokeniser.restore(facts["tokeniser"])
    train, valid, test = ids.split(facts["sizes"])
    vocabulary = tokeniser.vocabulary
    found = read_facts(facts["text"])
    if found is not None:
        found = dataclasses.replace(found, tokens=len(ids), left_out=vocabulary.left_out)
    return EncodedSplits(train, valid, test, vocabulary, TextSize(*facts["test"]), found)


def _encode(name: str, texts: Texts, tokeniser: Tokeniser) -> Encoded:
    train, _, test = texts
    tokeniser.fit(train)
    tokeniser.check(name, test)
    dtype = token_dtype(len(tokeniser.vocabulary))
    parts = [_ids(tokeniser, text, dtype) for text in texts]
    parts[0] = tokeniser.prepare(*parts)
    facts = {
        "tokeniser": tokeniser.facts(),
        "sizes": [len(part) for part in parts],
        "test": _text_size(test),
    }
    return torch.cat(parts), facts


def _ids(tokeniser: Tokeniser, text: memoryview, dtype: torch.dtype) -> Integer[Tensor, "n"]:
    stretches = [
        torch.from_numpy(tokeniser.encode(part)).to(dtype) for part in tokeniser.stretches(text)
    ]
    return torch.cat(stretches) if stretches else torch.empty(0, dtype=dtype)


def _text_size(text: memoryview) -> tuple[int, int, int]:
    """Return the characters, bytes and words of the raw text, whatever its tokens are."""
    characters = words = 0
    for part in cut_stretches(text, at_blanks=True):
        decoded = part.decode(errors="replace")
        characters, words = characters + len(decoded), words + count_words(decoded)
    return characters, len(text), words


def _settings(config: Any) -> dict[str, Any]:
    fields = {name for name in TokeniserConfig.__dataclass_fields__ if name != "tokenizer"}
    settings: Mapping[str, Any] = {k: v for k, v in to_dict(config).items() if k in fields}
    # Another version of the package may merge other pairs.
    version = {"version": metadata.version("tokenizers")} if config.unit == "bpe" else {}
    return {**settings, **version}


def _not_utf8(name: str, texts: Texts) -> UserError:
    for split, text in zip(SPLITS, texts, strict=True):
        try:
            bytes(text).decode()
        except UnicodeDecodeError as error:
            line = bytes(text).count(b"\n", 0, error.start) + 1
            bad = error.object[error.start : error.end].hex(" ")
            return UserError(
                f"{name}: bytes {bad} in line {line} of the {split} split are not UTF-8; convert "
                "the text to UTF-8, or set corpus.unit=byte"
            )
    raise AssertionError
