"""Recurrences whose reverse sweep is derived by hand, one cell family per file.

Each is the fast form of a cell's `step` loop and equals it, in outputs and gradients. What
they share: inputs are projected for all steps by one product, or word by word where they are
words (`inputs.py`, `words.py`); time is the first axis, so that a step is one contiguous
block; the forward sweep works in place and keeps what the reverse sweep reads; weight
gradients are products of all steps after it, or a share a step where a step is large
(`gradients.py`).

    T steps, B sequences, E inputs, H units, G columns of a weight
    x (T, *P, B, E),  start (*P, B, S),  weights (*P, E, G),  biases (*P, G)

A member axis P, if there is one, stands before B: P recurrences of one shape as one.
`torch.func.vmap` over a sweep becomes that axis (`sweep.py`).
"""
