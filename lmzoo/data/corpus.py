"""A corpus: encoded sequences in three splits, one vocabulary, and known facts about them.

To add a corpus, add a file to this folder with a `CorpusSource` that has a `Config` and a `load`.
Token ids follow `contract.PAD, START, END, UNKNOWN`, and every sequence begins with `<start>`.

Open a corpus by name: `captions`, `cath`, `text:PATH`, `fasta:PATH` ...
"""

import dataclasses
import functools
import gzip
import hashlib
import re
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lmzoo.base.config import config, to_dict
from lmzoo.base.errors import UserError
from lmzoo.base.memory import allocating, require_memory
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.registry import Registry
from lmzoo.base.streams import said
from lmzoo.contract import END, UNKNOWN, Task
from lmzoo.data.text_facts import TextFacts, TextSize, text_size
from lmzoo.data.vocabulary import Vocabulary, token_counts


def token_dtype(vocab: int) -> torch.dtype:
    """Return the smallest type of token ids below `vocab`; ids of int16 and int32 are signed."""
    # Token ids are most of a corpus in memory: the smallest type that holds them.
    if vocab <= 2**8:
        return torch.uint8
    if vocab <= 2**15:
        return torch.int16
    return torch.int32


@dataclass(frozen=True)
class Sequences:
    """Encoded sequences: padded token ids (N, T), and lengths (N,) that count `<start>`."""

    ids: Tensor
    """The tokens in any integer type; a corpus stores them in the smallest that its vocabulary
    allows (`token_dtype`). Batches are int64."""
    lengths: Tensor
    sources: tuple[Tensor, ...] = ()
    """In a corpus of pairs, the source of each sequence: tokens (N, S) without `<start>` and
    lengths (N,). Otherwise empty."""
    scored: Tensor | None = None
    """(N, T) bool: the tokens that loss and accuracy count. None: all but `<start>`."""
    context: bool = False
    """True if the tokens that are not scored are context, as in windows of a text. False if they
    are the input of a task, which has an accuracy."""

    def __post_init__(self):
        assert self.scored is None or self.scored.shape == self.ids.shape
        columns = (self.lengths,) + self.sources
        assert len(self.sources) in (0, 2)
        assert not self.ids.is_floating_point()
        assert all(column.dtype == torch.int64 for column in columns)
        assert all(len(column) == len(self.ids) for column in columns)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> Tensor:
        """The tokens as int64 (N, T), as models read them: a copy if they are stored smaller."""
        return self.ids.long()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a model scores: tokens, lengths, and the sources if there are any."""
        return (self.tokens, self.lengths) + self.sources

    def shrink(self, vocab: int) -> "Sequences":
        """Return the sequences with the smallest type of a vocabulary; a copy if it is another."""
        return dataclasses.replace(self, ids=self.ids.to(token_dtype(vocab)))

    @property
    def is_task(self) -> bool:
        """Whether some tokens are answers, whose accuracy counts."""
        if self.context:
            return False
        return self.scored is not None

    def for_epoch(self, epoch: int) -> "Sequences":
        """Return the training sequences of an epoch; the same in every epoch unless overridden."""
        del epoch
        return self

    @property
    def num_scored(self) -> int:
        """Number of scored tokens: all real tokens except `<start>`, unless `scored` is given."""
        return int(self.counts.sum())

    @property
    def counts(self) -> Tensor:
        """Number of scored tokens of each sequence (N,)."""
        if self.scored is None:
            # `<start>` is given, all others are scored.
            return self.lengths - 1
        return self.scored.sum(1)

    @property
    def unknown_share(self) -> float:
        """`<unk>` as a share of the scored tokens."""
        return self.occurrences(UNKNOWN) / max(1, self.num_scored)

    def occurrences(self, token: int) -> int:
        """Return how often a token occurs."""
        # In parts: the truth values of a large text need as much memory as itself.
        parts = self.ids.split(HASHED_ROWS)
        return sum(int(torch.count_nonzero(rows == token)) for rows in parts)

    def to(self, device: torch.device) -> Self:
        """Return the sequences on `device`, or self if they are there already."""
        if self.ids.device == device:
            return self
        columns = tree_map_only(Tensor, lambda column: column.to(device), vars(self))
        return dataclasses.replace(self, **columns)


HASHED_ROWS = 2**14
"""Sequences that are converted or compared at a time."""


@dataclass(frozen=True)
class EntropyFloor:
    """The least expected loss that any model can reach, in nats per scored token."""

    token: float
    """Token-weighted: H(sequence) / E[scored tokens]."""
    sentence: float
    """Sentence mean: E[ −log P(s) / scored tokens of s ]."""


SPLITS = ("train", "valid", "test")


@config
class DrawnConfig:
    """Sequences per split, and the random seed."""

    train: int = Field(4000, ge=1)
    valid: int = Field(500, ge=1)
    test: int = Field(1000, ge=1)
    seed: int = Field(0, ge=0)


@dataclass(frozen=True)
class Corpus:
    """Three splits with one vocabulary."""

    name: str
    vocabulary: Vocabulary
    train: Sequences
    valid: Sequences
    test: Sequences
    unit: str
    """The unit of a token: word, character, residue or symbol."""
    source: str
    """Origin and licence of the data."""
    floor: EntropyFloor | None = None
    """None where the entropy of the data is unknown."""
    ceiling: float | None = None
    """In a task, the greatest expected accuracy that any model can reach: the share of scored
    tokens. None where it is unknown."""
    source_vocabulary: Vocabulary | None = None
    """Vocabulary of the source sequences, in a corpus of pairs."""
    test_text: TextSize | None = None
    """Size of the scored text of the test split. None: that of the decoded tokens."""
    facts: TextFacts | None = None
    """What reading the user's text gave and lost. None for other corpora."""
    ends: bool | None = None
    """Whether complete sequences end with `<end>`. None: search the training tokens for `<end>`."""

    def __post_init__(self):
        for name in SPLITS:
            part: Sequences = getattr(self, name)
            object.__setattr__(self, name, part.shrink(len(self.vocabulary)))
        if self.ends is None:
            # Looked up once; a stream has no ends.
            object.__setattr__(self, "ends", self.train.occurrences(END) > 0)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(getattr(self, name)):,}" for name in SPLITS)
        floor = ""
        if self.floor:
            floor = f"; entropy {self.floor.token:.4f} nats per token"
        return (
            f"{self.name}: {sizes} sequences of up to {self.train.ids.shape[1]} tokens, a token is "
            f"a {self.unit}, vocabulary of {len(self.vocabulary):,}{floor}"
        )

    def to(self, device: torch.device) -> "Corpus":
        parts = {name: getattr(self, name).to(device) for name in SPLITS}
        return dataclasses.replace(self, **parts)

    @property
    def task(self) -> Task:
        """The sizes a model needs."""
        sizes = {}
        if self.source_vocabulary is not None:
            sizes["source_vocab"] = len(self.source_vocabulary)
            sizes["source_length"] = self.train.sources[0].shape[1]
        vocab = len(self.vocabulary)
        length = self.train.ids.shape[1]
        return Task(vocab=vocab, length=length, ends=bool(self.ends), **sizes)

    @functools.cached_property
    def test_size(self) -> TextSize | None:
        """Size of the scored text of the test split.

        None if unknown words were not measured, and in tasks, which score no text.
        """
        tokens = self.test.ids
        if self.test.is_task:
            return None
        # Words of `<unk>` are not known, so their characters cannot be counted.
        if self.test_text is not None or (tokens == UNKNOWN).any():
            return self.test_text
        texts = ((self.vocabulary.decode(row), END in row) for row in tokens.tolist())
        # Residues form no words.
        return text_size(texts, words=self.unit != "residue")

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the vocabulary and of all tokens, which identifies the data of a run."""
        digest = hashlib.sha256("\n".join(self.vocabulary.tokens).encode())
        if self.source_vocabulary is not None:
            digest.update("\n".join(self.source_vocabulary.tokens).encode())
        for part in (self.train, self.valid, self.test):
            for rows in part.ids.split(HASHED_ROWS):  # the hash is that of int64
                digest.update(rows.long().cpu().numpy().tobytes())
            columns = (part.lengths,) + part.sources
            if part.scored is not None:
                columns += (part.scored,)
            for column in columns:
                digest.update(column.cpu().numpy().tobytes())
        # Sixteen digits: enough to tell corpora apart, and readable.
        return digest.hexdigest()[:16]


class CorpusSource(ABC):
    """Loads a corpus: finds its files or samples it, splits it and encodes it."""

    name: ClassVar[str]
    Config: ClassVar[type]
    """Its fields. A subclass without one gets a subclass of the inherited one."""

    def __init_subclass__(cls):
        super().__init_subclass__()
        inherited = getattr(cls, "Config", None)
        # The class of a config says which corpus it is of: two corpora cannot share one.
        if inherited is not None and "Config" not in cls.__dict__:
            names = {"__doc__": inherited.__doc__, "__module__": cls.__module__}
            names["__qualname__"] = f"{cls.__qualname__}.Config"
            cls.Config = config(type("Config", (inherited,), names))

    def __init__(self, config: Any, data_dir: Path | None):
        self.config = config
        self.data_dir = data_dir

    @abstractmethod
    def load(self) -> Corpus:
        """Read or sample the sequences, split them and encode them.

        A `UserError` says which data are missing or unreadable, and what to do.
        """


CORPORA: Registry[type[CorpusSource]] = Registry("corpus")


FILE_KINDS = ("stream", "text", "pairs", "fasta")
SENTENCE_END = re.compile(r"[.!?…。！？]\W*$")
FURTHER_SENTENCE = re.compile(r"[.!?…]\W*\s+\S|[。！？]\S")
LOOKED_AT = 100_000
"""Bytes of a file from which its kind is guessed."""
FEWEST_LINES = 20
"""A file of fewer lines is no list of sequences."""


def _kind_of(path: Path) -> tuple[str, str]:
    """Return the kind of corpus that a file looks like, and the reason."""
    opened: Any = open
    if path.suffix == ".gz":
        opened = gzip.open
    with opened(path, "rb") as file:
        # The start of a file shows its kind.
        content = file.read(LOOKED_AT)
    text = content.decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    # A file that cannot be read, or is empty, gets its error when it is opened.
    if not lines:
        return "stream", "for running text"
    if lines[0].startswith(">"):
        return "fasta", "a line with > is before each sequence"
    with_tab = sum(line.count("\t") == 1 for line in lines)
    if with_tab > 0.9 * len(lines):
        return "pairs", "each line has two parts with a tab between them"
    # In a text without punctuation, a line without an end may be a sentence, too.
    punctuated = any(map(SENTENCE_END.search, lines))
    alone = 0
    for line in lines:
        if FURTHER_SENTENCE.search(line):
            continue
        if not punctuated or SENTENCE_END.search(line):
            alone += 1
    if len(lines) < FEWEST_LINES:
        return "stream", "its lines are too few to be split into training, validation and test"
    if alone > 0.8 * len(lines):
        return "text", "each line stands for itself"
    return "stream", "running text: sentences go on over lines, or several share one"


def parse_spec(spec: str | Fields) -> FieldsDict:
    """Convert `NAME`, `NAME:PATH` or a mapping to a mapping that has `name`."""
    if not isinstance(spec, str):
        return dict(spec)
    name, colon, path = spec.partition(":")
    file = Path(name)
    # A name without a suffix is more likely a misspelt corpus.
    if not colon and name not in CORPORA and (file.suffix or file.exists()):
        if not file.is_file():
            raise UserError(f"no file {name!r}; give the path of a text, plain or .gz")
        kind, reason = _kind_of(file)
        others = ", ".join(f"{other}:" for other in FILE_KINDS if other != kind)
        command = shlex.quote(f"{kind}:{name}")
        raise UserError(
            f"corpus {name!r} is a file; write {command} ({reason}), or one of {others}"
        )
    if colon:
        return {"name": name, "path": path}
    return {"name": name}


def corpus_config(spec: str | Fields, fields: Fields | None = None) -> FieldsDict:
    """Return the config of a corpus, with these fields.

    A `UserError` says that the corpus is unknown or an option invalid.
    """
    merged = parse_spec(spec)
    if fields is not None:
        merged |= fields
    return CORPORA.dump(CORPORA.parse(merged))


def open_corpus(spec: str | Fields, data_dir: Path | None = None) -> Corpus:
    """Load the corpus that `spec` names; a field that is not given has its default.

    Args:
        spec: `NAME`, `NAME:PATH`, or a mapping of `name` and config fields, such as the config of
            a run or that of `corpus_config`.
        data_dir: Folder of the corpus files. None downloads them if the corpus needs files.

    A `UserError` says that the corpus is unknown, an option invalid, or the data unreadable.
    """
    config = CORPORA.parse(parse_spec(spec))
    fields = to_dict(config)
    sequences = 0
    for split in SPLITS:
        count = fields.get(split)
        # Drawn corpora say how many sequences they have; a file is checked when it is read.
        if isinstance(count, int):
            sequences += count
    name = CORPORA.name_of(config)
    require_memory(sequences * int(fields.get("length") or 1), f"corpus {name}")
    what = f"corpus {name}"
    with allocating(what), said(f"reading {what}"):
        return CORPORA.build(config, data_dir).load()


def describe_data(corpus: Corpus) -> list[str]:
    """Return what every command says first of a corpus: the facts of a user's text, and `<unk>`."""
    lines = []
    if corpus.facts:
        lines += corpus.facts.lines(corpus.unit, len(corpus.vocabulary))
    unknown = describe_unknown(corpus)
    if unknown:
        lines.append(unknown)
    return lines


def describe_unknown(corpus: Corpus) -> str:
    """Return one line about `<unk>` in the splits; "" if validation and test have none."""
    train = corpus.train.unknown_share
    valid = corpus.valid.unknown_share
    test = corpus.test.unknown_share
    # The training part may have none by design; only scores of held-out ones matter.
    if not (valid or test):
        return ""
    held_out = f"{valid:.2%} of the validation and {test:.2%} of the test tokens"
    if train:
        return f"<unk> is {train:.2%} of the training, {held_out}"
    counts = token_counts(corpus.train.ids.flatten(), len(corpus.vocabulary))
    has_rare = bool((counts[UNKNOWN + 1 :] == 1).any())
    reason = ""
    if not has_rare:
        reason = "no training token is rare, and "
    return f"<unk> is {held_out}, but {reason}training has none: its probability is not learned"
