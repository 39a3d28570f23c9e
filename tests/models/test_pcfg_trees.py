"""Trees drawn from a PCFG have the probabilities of the grammar, given their length."""

import re
from collections import Counter

import pytest
import torch
from scipy import stats

from lmzoo.errors import UserError
from lmzoo.models.grammar.trees import draw_tree
from tests.models.grammars import tiny_pcfg

WORDS = ["w0", "w1", "end", "w3", "w4"]
MOST, DRAWS = 3, 3000


def leaves(tree: str) -> tuple[int, ...]:
    return tuple(WORDS.index(word) for word in re.findall(r"\(Q\d (\w+)\)", tree))


@torch.no_grad()
def test_the_frequency_of_a_sentence_is_its_probability_given_the_length():
    model = tiny_pcfg()
    grammar, generator = model.grammar(), torch.Generator().manual_seed(0)
    drawn = Counter(leaves(draw_tree(grammar, WORDS, MOST, generator)) for _ in range(DRAWS))
    words = [i for i in range(len(WORDS)) if WORDS[i] != "end"]
    sentences = [(a,) for a in words] + [(a, b) for a in words for b in words]
    sentences += [(a, b, c) for a in words for b in words for c in words]
    exact = {s: model.sentence_log_prob(torch.tensor([s])).exp().item() for s in sentences}
    exact[()] = grammar.root[0].exp().item()
    total = sum(exact.values())
    assert set(drawn) <= set(exact)
    expected = {s: DRAWS * p / total for s, p in exact.items()}
    usual = [s for s in exact if expected[s] >= 5]
    observed = [drawn[s] for s in usual]
    counts = [*observed, DRAWS - sum(observed)]  # rare sentences together
    known = [expected[s] for s in usual]
    assert stats.chisquare(counts, [*known, DRAWS - sum(known)]).pvalue > 1e-4


@torch.no_grad()
def test_brackets_match_and_every_rule_has_two_parts():
    grammar, generator = tiny_pcfg().grammar(), torch.Generator().manual_seed(1)
    for _ in range(50):
        tree = draw_tree(grammar, WORDS, 6, generator)
        for _ in range(12):  # each pass replaces the innermost brackets by a leaf
            tree = re.sub(r"\(A\d+ • •\)|\(Q\d+ \w+\)", "•", tree)
        assert tree in {"•", "()"}


@torch.no_grad()
def test_a_grammar_of_long_sentences_is_refused():
    model = tiny_pcfg()
    model.root[0] = -50.0
    model.root[1 + len(model.rules) :] = -50.0
    model.rules[:, len(model.rules) :, :] = -50.0
    with pytest.raises(UserError, match="at most 3 words; train the grammar longer"):
        draw_tree(model.grammar(), WORDS, MOST, torch.Generator().manual_seed(0))
