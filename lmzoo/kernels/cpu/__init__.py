"""numba kernels for CPUs, where a sequence of torch operations would pass over memory many times.

A kernel is the body of one custom autograd function; the file of one of them has the equations.
Other devices run the naive reference in torch operations. Arrays have C order; the first axis is
the pack member, or time and then the member (`kernels/scan.py` names the axes). Kernels have no
annotations: the runtime shape checks of the tests would wrap them. `no_type_check` stands where
pyright misreads a call of an intrinsic.
"""
