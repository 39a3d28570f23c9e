"""CATH domains in the default split and in that of S0."""

import pytest

from lmzoo.contract import END, UNKNOWN
from lmzoo.data.corpus import SPLITS, open_corpus
from tests.data.corpus_parts import decoded

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture
def folder(tmp_path):
    """A release of 20 domains; domain i has 2i + 1 residues and begins with residue i."""
    records = []
    for i, residue in enumerate(RESIDUES):
        domain = residue + "AG" * i
        records.append(f">cath|{i}\n{domain}\n")
    release = tmp_path / "cath-dataset-nonredundant-S20-v4_1_0.fa"
    release.write_text("".join(records))
    return tmp_path


@pytest.fixture
def by_default(folder):
    return open_corpus({"name": "cath", "length": 21}, folder)


@pytest.fixture
def published(folder):
    return open_corpus({"name": "cath", "split": "seed", "length": 10}, folder)


def first_residues(corpus, split):
    part = getattr(corpus, split)
    return "".join(domain[0] for domain in decoded(corpus, part))


def test_the_default_split_deals_domains_8_1_1(by_default):
    assert first_residues(by_default, "train") == RESIDUES[:8] + RESIDUES[10:18]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_residues_that_begin_no_training_domain_are_unknown(by_default, split):
    part = getattr(by_default, split)
    first = part.tokens[:, 1]
    # They are L, M, W and Y.
    assert first.tolist() == [UNKNOWN, UNKNOWN]


def test_a_domain_that_fits_has_an_end(by_default):
    ends = by_default.train.tokens.eq(END).any(dim=1)
    # Domain i has 2i + 1 residues; with <start> and <end> it fits into 21 up to i = 9.
    assert ends.tolist() == [True] * 8 + [False] * 8


def test_the_published_split_holds_out_every_fifth_domain(published):
    parts = [first_residues(published, split) for split in SPLITS]
    assert parts == ["ACDEGHIKMNPQSTVW", "FR", "LY"]


def test_the_published_split_has_no_end_and_nothing_unknown(published):
    for split in SPLITS:
        tokens = getattr(published, split).tokens
        assert not tokens.eq(END).any()
        assert not tokens.eq(UNKNOWN).any()


def test_domains_of_the_published_split_are_cut(published):
    assert published.train.lengths.tolist() == [2, 4, 6, 8] + [10] * 12
