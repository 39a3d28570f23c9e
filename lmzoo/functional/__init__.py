"""Pure functions of tensors, and how parameters are drawn.

In come tensors, out come tensors: sums in log space, trees, normalisers, recurrences, attention.
Read `logspace.py` first. Functions with a kernel have a naive form in the same file.
"""
