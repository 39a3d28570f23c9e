"""Loops compiled for the processor, where torch's operations would pass over memory many times.

Each is the inside of one autograd function beside this folder, whose docstring has the
equations and whose plain formula serves other devices. Arrays have C order and a first axis
of members, after that of time where there is one. No annotations: what checks shapes while tests
run would stand in the compiler's way. What loops call: products (`blas.py`), activations
(`smooth.py`), a recurrence's inputs (`paths.py`).
"""
