"""Recurrences as a forward and a backward sweep over time, one cell family per file.

Each is the fast form of the loop over a cell's `step` and equals it in outputs and gradients. The
equations of every file have two implementations:

    kernels       kernels/cpu/<cell>.py: on a CPU one numba kernel runs the whole sweep, products
                  included, one pack member at a time. Inputs are vectors, or tokens and a table.
    torch         <cell>.py: on any device, one torch operation after another. One product projects
                  the inputs of all steps; the weights' gradients are products over all steps,
                  after the sweep (`gradients.py`).

Time is the first axis in both, so that a step is one contiguous block. The forward sweep works in
place and saves what the backward sweep reads.

    T steps, B sequences, E inputs, H units, G columns of a weight
    x (T, *P, B, E),  start (*P, B, S),  weights (*P, E, G),  biases (*P, G)

P is the pack member, an optional axis before B. `torch.func.vmap` over a scan adds it
(`autograd.py`).
"""
