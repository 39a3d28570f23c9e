"""Docstrings of registered parts, read without importing them, are those of the classes."""

import inspect

from lmzoo.base.docstrings import class_docstring, first_block, part_docstring
from lmzoo.data.corpus import CORPORA


def test_every_corpus_has_the_docstring_of_its_class():
    for name in CORPORA:
        assert class_docstring("CORPORA", name) == inspect.getdoc(CORPORA[name]) != "", name


def test_a_part_that_is_not_registered_has_none():
    assert class_docstring("CORPORA", "nothing") == part_docstring("EMISSIONS", "nothing") == ""


def test_the_first_block_has_the_equations():
    lines = first_block(part_docstring("EMISSIONS", "mixture"))
    assert lines[0] == "P(z | y) = softmax_z( A y + a )"
    assert len(lines) == 3
    assert first_block("Prose\n\nonly.") == []
