"""The published Kneser-Ney 5-gram on PTB, where the user has the files of PTB.

Mikolov et al. (2011, "Extensions of recurrent neural network language model") report a perplexity
of 141.2 on the test split, by sentence; ours is 141.19. As one text it is 142.03: a word sees the
words before it across sentences, but the first words of a window see few.
"""

import os
from pathlib import Path

import pytest

from lmzoo import zoo
from lmzoo.data.corpus import open_corpus
from lmzoo.data.files import read_lines
from lmzoo.data.sequences import assemble
from lmzoo.data.vocabulary import build_vocabulary
from lmzoo.train.evaluate import evaluate


@pytest.fixture(scope="module")
def ptb():
    """Folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt."""
    folder = Path(os.environ.get("LMZOO_DATA", "data")) / "ptb"
    if not all((folder / f"ptb.{split}.txt").is_file() for split in ("train", "valid", "test")):
        pytest.skip(f"no ptb.train.txt, ptb.valid.txt and ptb.test.txt in {folder}; set LMZOO_DATA")
    return folder


@pytest.mark.slow
def test_the_files_have_the_published_sizes(ptb):
    corpus = open_corpus("ptb", ptb)
    assert len(corpus.train.stream) == 929_589
    assert (corpus.valid.num_scored, corpus.test.num_scored) == (73_760, 82_430)
    assert corpus.test_size.words == 82_430
    assert len(corpus.vocabulary) == 10_000 + 3  # <unk> is a special token and a word of PTB


@pytest.mark.slow
def test_by_sentence_the_5_gram_has_the_published_perplexity(ptb):
    parts = [
        [line.split() for line in read_lines(ptb / f"ptb.{split}.txt")]
        for split in ("train", "valid", "test")
    ]
    longest = max(len(line) for part in parts for line in part) + 2
    corpus = assemble(
        "ptb", parts, build_vocabulary(parts[0]), length=longest, end=True, unit="word", source=""
    )
    assert corpus.test.num_scored == 82_430
    model = zoo.build(zoo.config("ngram_count", order=5), corpus.task)
    model.fit_closed_form(corpus.train.tokens, corpus.train.lengths)
    assert evaluate(model, corpus.test).perplexity == pytest.approx(141.2, abs=0.05)
