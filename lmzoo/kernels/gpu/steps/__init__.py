"""Recurrences whose weights do not fit on the chip: each step is one kernel, or two where a product
needs the result of another.

A program computes `ROWS` sequences and `COLUMNS` units of one pack member for one step. A kernel
gets the addresses of a step's slices of tensors (P, B, T, ...). The backward kernel of step t
begins with the products of step t + 1, whose operands the programs of that step have written. The
symbols are those of the kernels of all steps, in the files of the same names one folder above.
"""
