"""Encode token strings as sequences, and build corpora of sequences or of pairs from them.

    sequence or target   <start> y_1 .. y_n <end>       `<end>` is optional in sequences
    source               x_1 .. x_m <end>               with its own vocabulary

A corpus of pairs has a source for each target; models predict the target from its source. Where
validation or test has `<unk>`, some rare training words become `<unk>` too (`vocabulary.py`), on
each side of a pair by itself.
"""

import dataclasses
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmzoo.base.errors import UserError, near
from lmzoo.base.memory import require_memory
from lmzoo.contract import END, PAD, START
from lmzoo.data.corpus import SPLITS, Corpus, Sequences, token_dtype
from lmzoo.data.text_facts import TextFacts, text_size
from lmzoo.data.tokenisers import Subwords
from lmzoo.data.vocabulary import (
    SPECIALS,
    Lines,
    Reread,
    Vocabulary,
    build_vocabulary,
    replace_rare_words,
)

Sentences = Sequence[Sequence[str]]
"""Sequences of token strings."""
CHUNK = 10_000
"""Sentences that are encoded at a time."""
Pair = tuple[Sequence[str], Sequence[str]]
"""The tokens of a source and of its target."""


def encode(
    sentences: Sentences,
    vocabulary: Vocabulary,
    *,
    length: int,
    end: bool,
    end_after_cut: bool = True,
) -> tuple[Sequences, "Cuts"]:
    """Encode sentences as `<start>`, tokens, optionally `<end>`, and padding; say what was cut.

    Args:
        sentences: The token strings.
        vocabulary: Maps token strings to ids.
        length: Padded length T. Longer sentences are cut so that the special tokens fit.
        end: Append `<end>`.
        end_after_cut: Append `<end>` to cut sentences too, as S0 does. With False, only complete
            sentences end with `<end>`.
    """
    dtype = token_dtype(len(vocabulary))
    lengths = torch.zeros(len(sentences), dtype=torch.int64)
    size = (len(sentences) * dtype.itemsize + CHUNK) * length
    require_memory(size, f"{len(sentences):,} sequences of length {length:,}")
    # Its pages take memory when their rows are written.
    tokens = torch.empty((len(sentences), length), dtype=dtype)
    whole = []
    lost = []
    unread = iter(sentences)
    for first in range(0, len(sentences), CHUNK):  # lists of numbers need much memory
        rows = []
        for sentence in islice(unread, CHUNK):
            kept, has_end = cut(sentence, length=length, end=end, end_after_cut=end_after_cut)
            row = [START] + vocabulary.encode(kept)
            if has_end:
                row.append(END)
            rows.append(row)
            whole.append(len(sentence))
            if len(kept) < len(sentence):
                lost.append(len(sentence) - len(kept))
        part = slice(first, first + len(rows))
        tokens[part] = PAD
        lengths[part] = torch.tensor([len(row) for row in rows])
        # One flat assignment in row-major order is much faster than one tensor per row.
        filled = torch.arange(length) < lengths[part, None]
        tokens[part][filled] = torch.tensor(list(chain.from_iterable(rows)), dtype=dtype)
    cuts = Cuts(
        tokens=sum(whole),
        longest=max(whole, default=0),
        cut=len(lost),
        lost=sum(lost),
    )
    return Sequences(tokens, lengths), cuts


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
    has_end = end
    if not end_after_cut and len(sentence) > length - 2:
        has_end = False
    room = length - 1
    if has_end:
        room -= 1
    return sentence[:room], has_end


def assemble(
    name: str,
    parts: Sequence[Sentences],
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
    """Encode the sentences that train, validate and test; `encode` has the other arguments.

    With `train_unk`, rare training words become `<unk>` if validation or test has `<unk>`. `facts`
    are those of a user's text, to which the sizes are added. A `UserError` says that a split has no
    sequence, or the vocabulary no token.
    """
    _refuse_empty(name, parts, vocabulary, unit)
    fit = {"length": length, "end": end, "end_after_cut": end_after_cut}
    train = parts[0]
    # Before training: whether they have `<unk>` decides what training reads.
    valid, valid_cuts = encode(parts[1], vocabulary, **fit)
    test, test_cuts = encode(parts[2], vocabulary, **fit)
    if train_unk and (valid.unknown_share or test.unknown_share):
        # A model that never saw `<unk>` has no trained score of it.
        train = replace_rare_words(train, vocabulary)
    room = length - 1
    if end and end_after_cut:
        room -= 1
    seen = 0
    if facts is not None:
        seen = facts.seen
        # Complete sentences that differ may be equal after the cut.
        if not seen and test_cuts.cut and not end_after_cut:
            seen = _count_equal_cuts(parts[0], parts[2], room)
    # Unknown words are measured as they are spelled, subwords as the text that they stand for.
    join = vocabulary.joiner.join
    if isinstance(vocabulary, Subwords):
        join = vocabulary.join
    kept = (cut(sentence, **fit) for sentence in parts[2])
    texts = ((join(tokens), ends) for tokens, ends in kept)
    size = text_size(texts, words=unit != "residue")
    # The numbers of a text need as much memory as its lines.
    for part in parts:
        if isinstance(part, Lines):
            part.give_up(read=part is parts[0])
    encoded, train_cuts = encode(train, vocabulary, **fit)
    if facts is not None:
        cuts = (train_cuts, valid_cuts, test_cuts)
        facts = dataclasses.replace(
            facts,
            seen=seen,
            seen_share=seen / len(parts[2]),
            room=room,
            splits=tuple(map(len, parts)),
            longest=max(part.longest for part in cuts),
            tokens=sum(part.tokens for part in cuts),
            cut=sum(part.cut for part in cuts),
            lost=sum(part.lost for part in cuts),
            left_out=vocabulary.left_out,
            unknown=round(test.unknown_share, 6),
        )
    return Corpus(
        name,
        vocabulary,
        encoded,
        valid,
        test,
        unit=unit,
        source=source,
        test_text=size,
        facts=facts,
    )


def _refuse_empty(name: str, parts: Sequence[Sentences], vocabulary: Vocabulary, unit: str):
    """Raise a `UserError` if a split has no sequence, or the vocabulary no token."""
    for part, sentences in zip(SPLITS, parts, strict=True):
        if not sentences:
            sizes = " + ".join(map(str, map(len, parts)))
            stream = ""
            if name == "text":
                stream = "; for a running text use stream:PATH"
            raise UserError(
                f"{name}: the {part} split is empty (train + valid + test = {sizes} sequences); "
                f"give a longer file{stream}"
            )
    if len(vocabulary) == len(SPECIALS):
        raise UserError(f"{name}: no {unit} is frequent enough for the vocabulary; lower min_count")


def _count_equal_cuts(train: Sentences, test: Sentences, room: int) -> int:
    """Return how many cut sentences of the test split equal a cut one of training."""

    def cut_hashes(part: Sentences) -> list[int]:
        return [hash(tuple(sentence[:room])) for sentence in part if len(sentence) > room]

    known = set(cut_hashes(train))
    return sum(found in known for found in cut_hashes(test))


def assemble_pairs(
    name: str,
    parts: Sequence[Sequence[Pair]],
    *,
    min_count: int,
    limit: int = 0,
    unit: str = "word",
    **options: Any,
) -> Corpus:
    """Build a corpus from training, validation and test pairs; both sides are cut to one length.

    `options` are those of `assemble`. A `UserError` says that a split has no pair.
    """

    def assemble_side(side: int) -> Corpus:
        # A list of sides, not of pairs: the sides of a pair are independent sequences.
        own: Sequence[Sentences] = [[pair[side] for pair in part] for part in parts]
        if unit == Subwords.unit:
            own, vocabulary = subwords(own, limit)
        else:
            vocabulary = build_vocabulary(own[0], limit=limit, min_count=min_count)
        return assemble(
            name,
            own,
            vocabulary,
            end=True,
            end_after_cut=True,
            unit=unit,
            **options,
        )

    sources = assemble_side(0)
    targets = assemble_side(1)
    changes = {}
    for split in SPLITS:
        part = getattr(targets, split)
        source = getattr(sources, split)
        # Models read a source from its first word: `<start>` is for what is predicted.
        without_start = (source.tokens[:, 1:], source.lengths - 1)
        changes[split] = Sequences(part.tokens, part.lengths, without_start)
    one = sources.facts
    other = targets.facts
    if one and other:
        changes["facts"] = dataclasses.replace(
            other,
            tokens=one.tokens + other.tokens,
            cut=one.cut + other.cut,
            lost=one.lost + other.lost,
            left_out=one.left_out + other.left_out,
            longest=max(one.longest, other.longest),
            unknown=max(one.unknown, other.unknown),
        )
    return dataclasses.replace(targets, source_vocabulary=sources.vocabulary, **changes)


def subwords(parts: Sequence[Sentences], limit: int) -> tuple[list[Sentences], Vocabulary]:
    """Return the splits by byte pairs of their training words, and their vocabulary."""
    vocabulary = Subwords.learn(map(" ".join, parts[0]), limit)

    def read(part: Sentences) -> Sentences:
        return Reread(len(part), lambda: map(vocabulary.split, map(" ".join, part)))

    return list(map(read, parts)), vocabulary


def encode_sentence(corpus: Corpus, text: str) -> tuple[Tensor, Tensor]:
    """Encode a text as one sequence: tokens (1, T) and lengths (1).

    Tokens are separated by blanks, or are characters if the corpus has characters. A token outside
    the vocabulary becomes `<unk>`. A `UserError` says that the text is empty or too long, or has an
    unknown token although the training split has no `<unk>`.
    """
    vocabulary = corpus.vocabulary
    tokens = vocabulary.split(text)
    if not tokens:
        raise UserError("the text is empty; give at least one token")
    # A model that never saw `<unk>` has no trained score of it.
    has_unknown = corpus.train.unknown_share > 0
    for token in tokens:
        if token not in vocabulary.ids and not has_unknown:
            hint = near(token, vocabulary.tokens[len(SPECIALS) :])
            raise UserError(
                f"{token!r} is not in the vocabulary of {corpus.name}, which has no <unk>{hint}"
            )
    ids = [START] + vocabulary.encode(tokens)
    if corpus.ends:
        ids.append(END)
    length = corpus.task.length
    if len(ids) > length:
        room = len(tokens) - len(ids) + length
        raise UserError(f"the text has {len(tokens)} tokens; {corpus.name} has room for {room}")
    return torch.tensor([ids]), torch.tensor([len(ids)])
