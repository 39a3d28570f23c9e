"""The published Kneser-Ney 5-gram on PTB, where the user has the files of PTB.

Mikolov et al. (2011, "Extensions of recurrent neural network language model") report a perplexity
of 141.2 on the test split, by sentence; ours is 141.19. As one text it is 142.03: a word sees the
words before it across sentences, but the first words of a window see few.
"""

import os
from itertools import chain
from pathlib import Path

import pytest

from lmzoo import zoo
from lmzoo.data.corpus import SPLITS, Corpus, open_corpus
from lmzoo.data.files import read_lines
from lmzoo.data.sequences import assemble
from lmzoo.data.vocabulary import build_vocabulary
from lmzoo.train.evaluate import evaluate


@pytest.mark.slow
def test_sizes_are_the_published_ones_and_by_sentence_the_perplexity_of_the_5_gram():
    folder = Path(os.environ.get("LMZOO_DATA", "data")) / "ptb"
    files = [folder / f"ptb.{split}.txt" for split in SPLITS]
    if not all(file.is_file() for file in files):
        pytest.skip(f"no ptb.train.txt, ptb.valid.txt and ptb.test.txt in {folder}; set LMZOO_DATA")
    text = open_corpus("ptb", folder)
    assert len(text.train.stream) == 929_589
    assert text.valid.num_scored == 73_760
    assert text.test.num_scored == 82_430
    assert text.test_size.words == 82_430
    assert len(text.vocabulary) == 10_000 + 3  # <unk> is a special token and a word of PTB
    corpus = by_sentence(files)
    assert corpus.test.num_scored == 82_430
    config = zoo.config("ngram_count", order=5)
    model = zoo.build(config, corpus.task)
    model.fit_closed_form(corpus.train.tokens, corpus.train.lengths)
    losses = evaluate(model, corpus.test)
    # The published value has one decimal.
    assert losses.perplexity == pytest.approx(141.2, abs=0.05)


def by_sentence(files: list[Path]) -> Corpus:
    """Return the corpus in which each line is a sequence."""
    parts = []
    for file in files:
        lines = [line.split() for line in read_lines(file)]
        parts.append(lines)
    longest = max(len(line) for line in chain.from_iterable(parts))
    vocabulary = build_vocabulary(parts[0])
    # With <start> and <end>, no sentence is cut.
    fields = {"length": longest + 2, "end": True, "unit": "word", "source": ""}
    return assemble("ptb", parts, vocabulary, **fields)
