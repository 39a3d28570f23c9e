"""numba kernels for CPUs, where a sequence of torch operations would pass over memory many times.

A kernel is the body of one custom autograd function, whose file has the equations. Other devices
run torch operations. Arrays have C order; the first axis is the pack member, or time and then the
member (`scan/__init__.py` names the axes). Kernels have no annotations: the runtime shape checks
of the tests would wrap them.
"""
