"""Trees drawn from a PCFG: top-down, one rule after another.

    S -> X or ε ~ softmax(root),   A -> B C ~ rules_A,   q -> v ~ emission_q

A derivation may be infinite, and a corpus has a longest sentence: trees with more leaves than that
are drawn again, so the draws are from the grammar given the length.

Source: S1.
"""

from collections.abc import Sequence

import torch

from lmzoo.errors import UserError
from lmzoo.models.grammar.pcfg import LogGrammar

ATTEMPTS = 1000
"""Draws of one tree before the grammar counts as one of longer sentences."""


def draw_tree(
    grammar: LogGrammar, words: Sequence[str], most: int, generator: torch.Generator | None = None
) -> str:
    """Return a tree in brackets, such as "(A0 (Q1 a) (A2 (Q0 man) (Q3 runs)))"; "()" if empty.

    Args:
        grammar: the log-probabilities of the rules.
        words: the words by id.
        most: the largest number of leaves.
        generator: random generator; None uses the global one.

    Raises:
        UserError: No tree in `ATTEMPTS` draws has so few leaves.
    """
    for _ in range(ATTEMPTS):
        tree = _draw(grammar, words, most, generator)
        if tree is not None:
            return tree
    raise UserError(
        f"no tree in {ATTEMPTS:,} draws has at most {most} words; train the grammar longer"
    )


def _draw(
    grammar: LogGrammar, words: Sequence[str], most: int, generator: torch.Generator | None
) -> str | None:
    """Return a tree, or None if it has too many leaves."""
    labels, symbols = grammar.rules.shape[:2]
    start = _pick(grammar.root, generator)
    if start == 0:
        return "()"
    # Symbols to expand, the leftmost last; a string is written as it is. Each symbol has a leaf.
    pending: list[int | str] = [start - 1]
    text, leaves, open_symbols = "", 0, 1
    while pending:
        symbol = pending.pop()
        if isinstance(symbol, str):
            text += symbol
        elif symbol < labels:
            left, right = divmod(_pick(grammar.rules[symbol].flatten(), generator), symbols)
            text += f"(A{symbol} "
            pending += [")", right, " ", left]
            open_symbols += 1
        else:
            word = words[_pick(grammar.emission[symbol - labels], generator)]
            text += f"(Q{symbol - labels} {word})"
            leaves, open_symbols = leaves + 1, open_symbols - 1
        if leaves + open_symbols > most:
            return None
    return text


def _pick(log_probs: torch.Tensor, generator: torch.Generator | None) -> int:
    return int(torch.multinomial(log_probs.exp(), 1, generator=generator))
