"""What every command says first of a corpus: the facts of a text, and how `<unk>` is trained."""

from lmzoo.contract import UNKNOWN
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.unknown import has_unknown


def describe_data(corpus: Corpus) -> list[str]:
    """Return the block about a corpus: its facts, if it is a text of the user, and `<unk>`."""
    facts = corpus.facts.lines(corpus.unit, len(corpus.vocabulary)) if corpus.facts else []
    unknown = describe_unknown(corpus)
    return [*facts, *([unknown] if unknown else [])]


def describe_unknown(corpus: Corpus) -> str:
    """Return one line about `<unk>` in the splits; "" if validation and test have none."""
    if not has_unknown(corpus.valid, corpus.test):
        return ""
    train, valid, test = map(_unknown_share, (corpus.train, corpus.valid, corpus.test))
    held_out = f"{valid:.2%} of the validation and {test:.2%} of the test tokens"
    if train:
        return f"<unk> is {train:.2%} of the training, {held_out}"
    ids = corpus.train.ids
    rare = bool((ids[ids > UNKNOWN].int().bincount() == 1).any())
    reason = "" if rare else "no training token is rare, and "
    return f"<unk> is {held_out}, but {reason}training has none: its probability is not learned"


def _unknown_share(part: Sequences) -> float:
    """Return the share of `<unk>` among the scored tokens."""
    return float((part.ids == UNKNOWN).sum()) / max(1, part.num_scored)
