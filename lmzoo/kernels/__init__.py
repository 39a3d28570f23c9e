"""Fast forms of recurrences and reductions, for CPUs (numba) and for GPUs (Triton).

In come tensors of a naive formula in `cells` or `functional`; out come its values and gradients.
Read `dispatch.py` first: when a kernel runs, and how autograd and `vmap` call it. Then `scan.py`.
"""
