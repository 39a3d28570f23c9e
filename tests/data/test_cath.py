import gzip
import hashlib

import pytest

from lmzoo.contract import END, UNKNOWN
from lmzoo.data.cath import RELEASES
from lmzoo.data.open import open_corpus
from tests.data.refused import refused

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture
def folder(tmp_path):
    """20 domains of growing length, each named by its first residue."""
    records = [f">cath|{i}\n{RESIDUES[i]}{'AG' * i}\n" for i in range(20)]
    (tmp_path / "cath-dataset-nonredundant-S20-v4_1_0.fa").write_text("".join(records))
    return tmp_path


def firsts(corpus, part):
    return "".join(corpus.vocabulary.decode(row)[0] for row in part.tokens.tolist())


def test_the_default_split_is_three_way(folder):
    corpus = open_corpus("cath", folder)
    assert firsts(corpus, corpus.train) == RESIDUES[:8] + RESIDUES[10:18]
    # The training part never saw L, M, W or Y as a first residue.
    assert corpus.valid.tokens[:, 1].tolist() == [UNKNOWN] * 2
    assert corpus.test.tokens[:, 1].tolist() == [UNKNOWN] * 2


def test_end_stands_where_the_domain_is_whole(folder):
    corpus = open_corpus({"name": "cath", "length": 21}, folder)
    ends = corpus.train.tokens.eq(END).any(dim=1).tolist()
    # Domain i has 2 i + 1 residues; with <start> and <end> that fits 21 up to i = 9.
    assert ends == [i <= 9 for i in range(20) if i % 10 < 8]


def test_the_seeds_split_holds_out_every_fifth(folder):
    corpus = open_corpus({"name": "cath", "split": "seed", "length": 10}, folder)
    assert firsts(corpus, corpus.train) == "".join(r for i, r in enumerate(RESIDUES) if i % 5 != 4)
    assert firsts(corpus, corpus.valid) == RESIDUES[4] + RESIDUES[14]
    assert firsts(corpus, corpus.test) == RESIDUES[9] + RESIDUES[19]
    for part in (corpus.train, corpus.valid, corpus.test):
        assert not part.tokens.eq(END).any()
        assert not part.tokens.eq(UNKNOWN).any()
    assert corpus.train.lengths.tolist() == [min(10, 2 * i + 2) for i in range(20) if i % 5 != 4]


def test_s35_needs_the_users_copy(folder):
    with refused("cath", RELEASES["S35-v4_3_0"].url, "--data-dir"):
        open_corpus({"name": "cath", "release": "S35-v4_3_0"})
    with refused("cath", "cath-domain-seqs-S35-v4_3_0.fa", folder):
        open_corpus({"name": "cath", "release": "S35-v4_3_0"}, folder)


@pytest.mark.parametrize("field", [{"length": 1}, {"length": 513}, {"release": "S99"}])
def test_a_wrong_option_is_named(folder, field):
    with refused(*field, *field.values()):
        open_corpus({"name": "cath", **field}, folder)


def test_the_checksum_is_that_of_the_real_file(real):
    packed = (real / "cath" / "cath-dataset-nonredundant-S20-v4_1_0.fa.gz").read_bytes()
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == RELEASES["S20-v4_1_0"].sha256


@pytest.mark.parametrize("length", [20, 100])
@pytest.mark.parametrize("split", ["interleaved", "seed"])
def test_the_real_file(real, split, length):
    corpus = open_corpus({"name": "cath", "split": split, "length": length}, real)
    parts = (corpus.train, corpus.valid, corpus.test)
    assert [len(part) for part in parts] == [7_916, 989, 989]
    # 20 amino acids and X; S0's count has two specials where ours has four.
    assert len(corpus.vocabulary) == 21 + 4
    assert corpus.task.length == length
    for part in parts:
        assert 0 <= part.tokens.min() <= part.tokens.max() < len(corpus.vocabulary)
        assert part.lengths.min() >= 15  # the shortest domain has 14 residues
        assert part.lengths.max() == length
    # So many domains are whole: 6 have at most 18 residues, 2,755 at most 98.
    whole = {"seed": 0, "interleaved": {20: 6, 100: 2_755}[length]}[split]
    assert sum(int(part.tokens.eq(END).sum()) for part in parts) == whole
    assert corpus.floor is None
