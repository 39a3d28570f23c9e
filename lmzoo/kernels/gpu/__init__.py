"""Triton kernels of recurrences: one launch for all steps, sequences and pack members.

    launch.py              how every kernel is launched
    scan.py                recurrences with a matrix product in each step: the loop over time
    mgu.py, rnn.py, ...    a step of one recurrence, and its gradient
    linear_recurrence.py   elementwise recurrences, h_t = a_t ⊙ h_{t-1} + b_t

Each kernel equals the loop over the `step` of its cell. Without a GPU the kernels run in Triton's
interpreter (TRITON_INTERPRET=1), and they compile for a named
architecture (`benchmarks/gpu_resources.py`).

Triton: Tillet, Kung and Cox 2019 (doi:10.1145/3315508.3329973).
"""

import triton

from lmzoo.base.errors import UserError

MINIMUM = (3, 6)
"""The oldest Triton whose compiler accepts all kernels."""


def check_version(version: str):
    """Check the version of Triton.

    Raises:
        UserError: It is too old.
    """
    parts = version.split(".")[:2]
    if tuple(map(int, parts)) < MINIMUM:
        least = ".".join(map(str, MINIMUM))
        raise UserError(
            f"Triton {version} is too old for the GPU kernels; install Triton {least} or later, or "
            "use --device cpu"
        )


# Before a kernel is compiled, whose error would not name the version.
check_version(triton.__version__)
