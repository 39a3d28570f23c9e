"""Byte-pair encoding, trained on the training split, or a given `tokenizer.json`.

    trained   GPT-2's pattern, bytes as first tokens, merged until the vocabulary has V tokens
    given     any tokeniser of Hugging Face's `tokenizers` that keeps the text

A trained encoding is a function of the training text and V. It has no `<unk>`, because its first
tokens are all bytes. A given one must keep the text: if decoding the test split does not return its
characters, blanks aside, losses in bits and perplexities per word would be wrong, and the corpus is
refused. The special tokens of a corpus come first, so ids of a `tokenizer.json` are shifted.

Source: Sennrich et al. 2016 (arXiv:1508.07909); Radford et al. 2019 (byte-level).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from lmzoo.base.errors import UserError, user_path
from lmzoo.contract import UNKNOWN
from lmzoo.data.files import sha256_of
from lmzoo.data.tokenisers.base import Ids, Tokeniser
from lmzoo.data.vocabulary import SPECIALS, Vocabulary, token_of, word_of

DEFAULT = 8192
"""Vocabulary size of a trained encoding."""
LEAST = 256 + len(SPECIALS)
"""Size of a vocabulary of bytes alone."""


@dataclass(frozen=True)
class SubwordVocabulary(Vocabulary):
    """The tokens of a `tokenizer.json`, after the special tokens."""

    json: str = ""
    """Content of the `tokenizer.json`."""
    tokenizer: Any = field(init=False, repr=False, compare=False, default=None)
    shifted: np.ndarray = field(init=False, repr=False, compare=False, default=None)  # type: ignore[assignment]
    """Id in the `tokenizer.json` -> id in this vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        tokenizer = _tokenizers().Tokenizer.from_str(self.json)
        object.__setattr__(self, "tokenizer", tokenizer)
        known = tokenizer.get_vocab()
        shifted = np.full(max(known.values()) + 1, UNKNOWN, dtype=np.int32)
        for token, i in known.items():
            shifted[i] = self.ids[token]
        object.__setattr__(self, "shifted", shifted)

    def split(self, text: str) -> list[str]:
        return self.tokenizer.encode(text, add_special_tokens=False).tokens

    def join(self, tokens: Iterable[str]) -> str:
        ids = [self.tokenizer.token_to_id(word_of(token)) for token in tokens]
        return self.tokenizer.decode([i for i in ids if i is not None], skip_special_tokens=False)


class Subwords(Tokeniser):
    """One token per merged pair of bytes."""

    name, at_blanks = "subword", True

    def fit(self, text: memoryview) -> None:
        path = self.config.tokenizer
        self._set(_read(path, self.config.tokenizer_sha256) if path else self._train(text))

    def encode(self, text: bytes) -> Ids:
        encoding = self._tokenizer.encode(text.decode(), add_special_tokens=False)
        return self._shifted[np.array(encoding.ids, dtype=np.int64)]

    def facts(self) -> dict[str, Any]:
        return {"json": self._json}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self._set(facts["json"])

    def check(self, name: str, test: memoryview) -> None:
        for part in self.stretches(test):
            text = part.decode()
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            words = text.split()
            kept = self._tokenizer.decode(ids, skip_special_tokens=False).split()
            if "".join(words) != "".join(kept):
                pairs = zip_longest(words, kept, fillvalue="")
                was, becomes = next((a, b) for a, b in pairs if a != b)
                raise UserError(
                    f"{name}: the tokeniser {self.config.tokenizer} changes the test text, for "
                    f"example {was!r} to {becomes!r}, so bits per character would be wrong; use a "
                    "byte-level tokeniser"
                )

    def _set(self, content: str) -> None:
        tokenizer = _tokenizers().Tokenizer.from_str(content)
        ranked = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        own = [token_of(token) for token, _ in ranked]
        tokens = (*SPECIALS, *(token for token in own if token not in SPECIALS))
        vocabulary = SubwordVocabulary(tokens, joiner="", json=content)
        self.vocabulary, self._json = vocabulary, content
        self._tokenizer, self._shifted = vocabulary.tokenizer, vocabulary.shifted

    def _train(self, text: memoryview) -> str:
        size = self.config.vocab or DEFAULT
        least = LEAST + bool(self.config.separator)
        if size < least:
            raise UserError(
                f"vocab={size} is too small for byte pairs; the bytes and the special "
                f"tokens are {least}"
            )
        library = _tokenizers()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size - len(SPECIALS),
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=[self.config.separator] if self.config.separator else [],
            show_progress=False,
        )
        tokenizer.train_from_iterator((part.decode() for part in self.stretches(text)), trainer)
        return tokenizer.to_str()


def _read(path: str, expected: str) -> str:
    if sha256_of(path) != expected:
        raise UserError(
            f"{path} has the SHA-256 {sha256_of(path)[:12]} and not {expected[:12]}: it is another "
            "tokeniser than that of the run; give the file with which the run was trained"
        )
    content = user_path(path).read_text(encoding="utf-8")
    try:
        json.loads(content)
        _tokenizers().Tokenizer.from_str(content)
    except UserError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{path} is not a tokenizer.json of the package tokenizers ({reason}); give one that "
            "Tokenizer.save has written"
        ) from None
    return content


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError:
        raise UserError(
            "unit=bpe needs the package tokenizers; run: pip install tokenizers"
        ) from None
    return tokenizers
