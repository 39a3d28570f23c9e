"""Encode token strings as sequences, and build corpora of sequences or of pairs from them.

    sequence or target   <start> y_1 .. y_n <end>       `<end>` is optional in sequences
    source               x_1 .. x_m <end>               with its own vocabulary

A corpus of pairs has a source for each target; models predict the target from its source. Where
validation or test has `<unk>`, some rare training words become `<unk>` too (`vocabulary.py`), on
each side of a pair by itself.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from lmzoo.base.errors import UserError, near
from lmzoo.base.memory import require_memory
from lmzoo.contract import END, PAD, START
from lmzoo.data.corpus import Corpus, Sequences, token_dtype
from lmzoo.data.text_facts import TextFacts, TextSize, text_size
from lmzoo.data.tokenisers import SUBWORD, learn_subwords
from lmzoo.data.vocabulary import (
    SPECIALS,
    Reread,
    Vocabulary,
    build_vocabulary,
    replace_rare_words,
)

T = TypeVar("T")

Sentences = Sequence[Sequence[str]]
"""Sequences of token strings."""
CHUNK = 10_000
"""Sentences that are encoded at a time."""
Pair = tuple[Sequence[str], Sequence[str]]
"""The tokens of a source and of its target."""


@dataclass(frozen=True)
class Split:
    """The token strings of the three splits, not yet encoded."""

    train: Sentences
    valid: Sentences
    test: Sentences


def encode(
    sentences: Sentences,
    vocabulary: Vocabulary,
    *,
    length: int,
    end: bool,
    end_after_cut: bool = True,
) -> Sequences:
    """Encode sentences as `<start>`, tokens, optionally `<end>`, and padding.

    Args:
        sentences: The token strings.
        vocabulary: Maps token strings to ids.
        length: Padded length T. Longer sentences are cut so that the special tokens fit.
        end: Append `<end>`.
        end_after_cut: Append `<end>` to cut sentences too, as S0 does. With False, only complete
            sentences end with `<end>`.
    """
    sizes = {"length": length, "end": end, "end_after_cut": end_after_cut}
    return _encode(sentences, vocabulary, **sizes)[0]


def _encode(
    sentences: Sentences, vocabulary: Vocabulary, *, length: int, end: bool, end_after_cut: bool
) -> tuple[Sequences, "Cuts"]:
    """Return the sequences, and what was cut; see `encode`."""
    lengths = torch.zeros(len(sentences), dtype=torch.int64)
    size = (len(sentences) * token_dtype(len(vocabulary)).itemsize + CHUNK) * length
    require_memory(size, f"{len(sentences):,} sequences of length {length:,}")
    tokens = torch.full((len(sentences), length), PAD, dtype=token_dtype(len(vocabulary)))
    whole, lost, unread = [], [], iter(sentences)
    for first in range(0, len(sentences), CHUNK):  # lists of numbers need much memory
        rows = []
        for sentence in islice(unread, CHUNK):
            kept, has_end = cut(sentence, length=length, end=end, end_after_cut=end_after_cut)
            ids = vocabulary.encode(kept)
            rows.append([START, *ids, END] if has_end else [START, *ids])
            whole.append(len(sentence))
            if len(kept) < len(sentence):
                lost.append(len(sentence) - len(kept))
        part = slice(first, first + len(rows))
        lengths[part] = torch.tensor([len(row) for row in rows])
        # One flat assignment in row-major order is much faster than one tensor per row.
        filled = torch.arange(length) < lengths[part, None]
        tokens[part][filled] = torch.tensor(list(chain.from_iterable(rows)), dtype=tokens.dtype)
    return Sequences(tokens, lengths), Cuts(sum(whole), max(whole, default=0), len(lost), sum(lost))


class Cuts(NamedTuple):
    """The tokens of sentences before they are cut, and what is cut."""

    tokens: int
    longest: int
    cut: int
    """Sentences that are cut."""
    lost: int
    """Tokens after a cut."""


def cut(
    sentence: Sequence[str], *, length: int, end: bool, end_after_cut: bool
) -> tuple[Sequence[str], bool]:
    """Return the tokens that fit into `length`, and whether `<end>` follows; see `encode`."""
    has_end = end and (end_after_cut or len(sentence) <= length - 2)
    return sentence[: length - 1 - has_end], has_end


def measure(
    sentences: Sentences,
    join: Callable[[Iterable[str]], str],
    *,
    length: int,
    end: bool,
    end_after_cut: bool,
    words: bool = True,
) -> TextSize:
    """Return the size of the text that is scored, with unknown words as they are spelled."""
    kept = (cut(s, length=length, end=end, end_after_cut=end_after_cut) for s in sentences)
    return text_size(((join(tokens), has_end) for tokens, has_end in kept), words=words)


def assemble(
    name: str,
    split: Split,
    vocabulary: Vocabulary,
    *,
    length: int,
    end: bool,
    end_after_cut: bool = False,
    unit: str,
    source: str,
    train_unk: bool = False,
    facts: TextFacts | None = None,
) -> Corpus:
    """Encode the splits; `length`, `end` and `end_after_cut` are passed to `encode`.

    With `train_unk`, rare training words become `<unk>` if validation or test has `<unk>`. `facts`
    are those of a user's text, to which the sizes are added.

    Raises:
        UserError: A split has no sequence, or the vocabulary has no token.
    """
    for part, sentences in vars(split).items():
        if not sentences:
            sizes = " + ".join(str(len(other)) for other in vars(split).values())
            stream = "; for a running text use stream:PATH" if name == "text" else ""
            raise UserError(
                f"{name}: the {part} split is empty (train + valid + test = {sizes} sequences); "
                f"give a longer file{stream}"
            )
    if len(vocabulary) == len(SPECIALS):
        raise UserError(f"{name}: no {unit} is frequent enough for the vocabulary; lower min_count")
    sizes = {"length": length, "end": end, "end_after_cut": end_after_cut}
    encoded = partial(_encode, vocabulary=vocabulary, **sizes)
    train, (valid, valid_cuts), (test, test_cuts) = (
        split.train,
        encoded(split.valid),
        encoded(split.test),
    )
    if train_unk and (valid.unknown_share or test.unknown_share):
        train = replace_rare_words(train, vocabulary)
    encoded_train, train_cuts = encoded(train)
    if facts is not None:
        parts = train_cuts, valid_cuts, test_cuts
        facts = dataclasses.replace(
            facts,
            splits=(len(split.train), len(split.valid), len(split.test)),
            room=length - 1 - (end and end_after_cut),
            longest=max(part.longest for part in parts),
            **{n: sum(getattr(part, n) for part in parts) for n in ("tokens", "cut", "lost")},
            left_out=vocabulary.left_out,
            unknown=round(test.unknown_share, 6),
        )
    # Words are measured as they are spelled, subwords as the text that they stand for.
    join = vocabulary.join if unit == SUBWORD else vocabulary.joiner.join
    return Corpus(
        name=name,
        vocabulary=vocabulary,
        train=encoded_train,
        valid=valid,
        test=test,
        unit=unit,
        source=source,
        test_text=measure(split.test, join, **sizes, words=unit != "residue"),
        facts=facts,
    )


def assemble_pairs(
    name: str,
    parts: Sequence[Sequence[Pair]],
    *,
    length: int,
    min_count: int,
    unit: str,
    source: str,
    train_unk: bool,
    limit: int = 0,
    facts: TextFacts | None = None,
) -> Corpus:
    """Build a corpus from training, validation and test pairs; both sides are cut to `length`.

    Raises:
        UserError: A split has no pair.
    """

    def assemble_side(side: int) -> Corpus:
        split = Split(*([pair[side] for pair in part] for part in parts))
        if unit == SUBWORD:
            split, vocabulary = subwords(split, limit)
        else:
            vocabulary = build_vocabulary(split.train, limit=limit, min_count=min_count)
        return assemble(
            name, split, vocabulary, length=length, end=True, end_after_cut=True, unit=unit,
            source=source, train_unk=train_unk, facts=facts,
        )  # fmt: skip

    sources, targets = assemble_side(0), assemble_side(1)
    return dataclasses.replace(
        targets,
        train=with_sources(targets.train, sources.train),
        valid=with_sources(targets.valid, sources.valid),
        test=with_sources(targets.test, sources.test),
        source_vocabulary=sources.vocabulary,
        facts=sources.facts and targets.facts and _both_sides(sources.facts, targets.facts),
    )


def subwords(split: Split, limit: int) -> tuple[Split, Vocabulary]:
    """Return the split by byte pairs of its training words, and their vocabulary."""
    vocabulary = learn_subwords(map(" ".join, split.train), limit)

    def read(part: Sentences) -> Sentences:
        return Reread(len(part), lambda: map(vocabulary.split, map(" ".join, part)))

    return Split(read(split.train), read(split.valid), read(split.test)), vocabulary


def _both_sides(source: TextFacts, target: TextFacts) -> TextFacts:
    """Return the facts of pairs from those of their sides."""
    summed = {n: getattr(source, n) + getattr(target, n) for n in ("tokens", "cut", "lost")}
    left_out, unknown = source.left_out + target.left_out, max(source.unknown, target.unknown)
    longest = max(source.longest, target.longest)
    return dataclasses.replace(
        target, **summed, left_out=left_out, longest=longest, unknown=unknown
    )


def with_sources(targets: Sequences, sources: Sequences) -> Sequences:
    """Return the targets with their sources, the `<start>` of the sources removed."""
    return Sequences(targets.tokens, targets.lengths, (sources.tokens[:, 1:], sources.lengths - 1))


def encode_sentence(corpus: Corpus, text: str) -> tuple[Tensor, Tensor]:
    """Encode a text as one sequence: tokens (1, T) and lengths (1).

    Tokens are separated by blanks, or are characters if the corpus has characters. A token outside
    the vocabulary becomes `<unk>`.

    Raises:
        UserError: The text is empty or too long, or has an unknown token although the training
            split has no `<unk>`.
    """
    vocabulary = corpus.vocabulary
    tokens = vocabulary.split(text)
    if not tokens:
        raise UserError("the text is empty; give at least one token")
    has_unknown = corpus.train.unknown_share > 0
    for token in tokens:
        if token not in vocabulary.ids and not has_unknown:
            hint = near(token, vocabulary.tokens[len(SPECIALS) :])
            raise UserError(
                f"{token!r} is not in the vocabulary of {corpus.name}, which has no <unk>{hint}"
            )
    ids = [START, *vocabulary.encode(tokens), *([END] if corpus.ends else [])]
    length = corpus.task.length
    if len(ids) > length:
        room = len(tokens) - len(ids) + length
        raise UserError(f"the text has {len(tokens)} tokens; {corpus.name} has room for {room}")
    return torch.tensor([ids]), torch.tensor([len(ids)])
