"""numba kernels for CPUs, where a sequence of torch operations would pass over memory many times.

A kernel is the body of one custom autograd function, whose docstring has the equations. Other
devices run the plain formula. Arrays have C order; the first axis is the pack member, or time and
then the member. Kernels have no annotations: the runtime shape checks of the tests would wrap them.
"""
