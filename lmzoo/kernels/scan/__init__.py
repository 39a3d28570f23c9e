"""Recurrences whose reverse sweep is derived by hand, one cell family per file.

Each is the fast form of a cell's `step` loop and equals it, in outputs and gradients. There are
two ways, of the same equations:

    compiled              <cell>_loops.py    whole sweeps in one loop on a processor, a member at a
                                             time, its products too; inputs are vectors, or words
                                             whose rows of a table it looks up (`paths.py`)
    operation by operation       <cell>.py   of torch, on any device: inputs are projected for all
                                             steps by one product (`inputs.py`), weights' gradients
                                             are products of all steps afterwards (`gradients.py`)

In both time is the first axis, so that a step is one contiguous block; the forward sweep works in
place and keeps what the reverse sweep reads.

    T steps, B sequences, E inputs, H units, G columns of a weight
    x (T, *P, B, E),  start (*P, B, S),  weights (*P, E, G),  biases (*P, G)

A member axis P, if there is one, stands before B: P recurrences of one shape as one.
`torch.func.vmap` over a sweep becomes that axis (`autograd.py`).
"""
