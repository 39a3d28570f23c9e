"""Enumeration of all labelled trees of a tiny grammar."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.contract import END, START, Task
from lmzoo.models.grammar.bracketing import Bracketing, all_bracketings
from lmzoo.models.grammar.pcfg import PCFG, LogGrammar

Rule = tuple[int, int, int]
Tree = tuple[int, tuple[Rule, ...], tuple[tuple[int, int], ...]]
"""Root label, rules, and (preterminal, word position) pairs of a tree."""


def tiny_pcfg(vocab: int = 5, length: int = 6, labels: int = 2, classes: int = 2) -> PCFG:
    model = zoo.build(
        zoo.config("pcfg", nonterminals=labels, preterminals=classes),
        Task(vocab=vocab, length=length),
        seed=4,
    )
    assert isinstance(model, PCFG)
    return model.double()


def labelled_trees(bracketing: Bracketing, labels: int, classes: int) -> Iterator[Tree]:
    """Yield every labelling of a bracketing."""
    if isinstance(bracketing, int):
        for q in range(classes):
            yield labels + q, (), ((q, bracketing),)
        return
    for b, left_rules, left_leaves in labelled_trees(bracketing[0], labels, classes):
        for c, right_rules, right_leaves in labelled_trees(bracketing[1], labels, classes):
            for a in range(labels):
                yield a, ((a, b, c), *left_rules, *right_rules), (*left_leaves, *right_leaves)


def all_trees(words: int, labels: int, classes: int) -> Iterator[Tree]:
    for bracketing in all_bracketings(0, words):
        yield from labelled_trees(bracketing, labels, classes)


def tree_log_prob(tree: Tree, words: Tensor, grammar: LogGrammar) -> Tensor:
    """Return log P(words, tree)."""
    root, rules, leaves = tree
    total = grammar.root[1 + root]
    for rule in rules:
        total = total + grammar.rules[rule]
    for q, position in leaves:
        total = total + grammar.emission[q, words[position]]
    return total


def all_sentences(model: PCFG, words: int) -> Tensor:
    """Return every string of `words` words (all ids but `<end>`)."""
    ids = torch.tensor([v for v in range(model.task.vocab) if v != END])
    return torch.cartesian_prod(*[ids] * words).reshape(-1, words)


def add_start_and_end(words: Tensor) -> Tensor:
    """Return the sequences `<start>` words `<end>`."""
    edge = torch.ones(len(words), 1, dtype=torch.long)
    return torch.cat([START * edge, words, END * edge], dim=1)
