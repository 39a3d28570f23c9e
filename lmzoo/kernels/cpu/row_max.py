"""The maximum of every row, in a form that the compiler vectorises.

A float's bits, all but the sign inverted where the sign is set, are an integer of the same order.
LLVM does not vectorise a maximum of floats because of NaN. Here a NaN counts as larger or smaller
than all numbers, depending on its sign.
"""

from typing import Any, no_type_check

import numpy as np
from numba import types
from numba.extending import overload


def row_max(rows: Any, out: Any) -> None:
    """Write the maximum of each row of rows (N, K), K >= 1, to out (N)."""
    out[:] = rows.max(1)


@overload(row_max)
@no_type_check
def _row_max(rows, out):
    kind = {types.float32: np.int32, types.float64: np.int64}[rows.dtype]
    sign, rest = kind(np.iinfo(kind).bits - 1), kind(np.iinfo(kind).max)
    least = kind(np.iinfo(kind).min)

    def by_bits(rows, out):
        bits, out_bits = rows.view(kind), out.view(kind)
        for n in range(len(bits)):
            row, largest = bits[n], least
            for k in range(len(row)):
                largest = max(largest, kind(row[k] ^ ((row[k] >> sign) & rest)))
            out_bits[n] = largest ^ ((largest >> sign) & rest)

    return by_bits
