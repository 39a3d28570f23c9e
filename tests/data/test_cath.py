import pytest

from lmzoo.contract import END, UNKNOWN
from lmzoo.data.corpus import open_corpus

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture
def folder(tmp_path):
    """A release of 20 domains; domain i has 2i + 1 residues and begins with residue i."""
    records = [f">cath|{i}\n{RESIDUES[i]}{'AG' * i}\n" for i in range(20)]
    (tmp_path / "cath-dataset-nonredundant-S20-v4_1_0.fa").write_text("".join(records))
    return tmp_path


def first_residues(corpus, part):
    return "".join(corpus.vocabulary.decode(row)[0] for row in part.tokens.tolist())


def test_the_default_split_deals_domains_8_1_1(folder):
    corpus = open_corpus({"name": "cath", "length": 21}, folder)
    assert first_residues(corpus, corpus.train) == RESIDUES[:8] + RESIDUES[10:18]
    # No training domain begins with L, M, W or Y.
    for part in (corpus.valid, corpus.test):
        assert part.tokens[:, 1].tolist() == [UNKNOWN] * 2
    # Domain i has 2i + 1 residues; with <start> and <end> it fits into 21 up to i = 9.
    ends = corpus.train.tokens.eq(END).any(dim=1).tolist()
    assert ends == [i <= 9 for i in range(20) if i % 10 < 8]


def test_the_published_split_holds_out_every_fifth_domain(folder):
    corpus = open_corpus({"name": "cath", "split": "seed", "length": 10}, folder)
    kept = [i for i in range(20) if i % 5 != 4]
    assert first_residues(corpus, corpus.train) == "".join(RESIDUES[i] for i in kept)
    assert first_residues(corpus, corpus.valid) == RESIDUES[4] + RESIDUES[14]
    assert first_residues(corpus, corpus.test) == RESIDUES[9] + RESIDUES[19]
    for part in (corpus.train, corpus.valid, corpus.test):
        assert not part.tokens.eq(END).any()
        assert not part.tokens.eq(UNKNOWN).any()
    assert corpus.train.lengths.tolist() == [min(10, 2 * i + 2) for i in kept]
