"""The largest number of each row, as the compiler finds it of many at once.

A float's bits, all but the sign turned over where that is set, are an integer of the same order.
Of floats themselves the largest is sought one after another, for the sake of NaN: here one is
larger or smaller than all numbers, by its sign.
"""

from typing import Any, no_type_check

import numpy as np
from numba import types
from numba.extending import overload


def largest(rows: Any, out: Any) -> None:
    """Fill out (N) with the largest of each of rows (N, K), K at least one."""
    out[:] = rows.max(1)


@overload(largest)
@no_type_check
def _largest(rows, out):
    kind = {types.float32: np.int32, types.float64: np.int64}[rows.dtype]
    sign, rest = kind(np.iinfo(kind).bits - 1), kind(np.iinfo(kind).max)
    least = kind(np.iinfo(kind).min)

    def by_bits(rows, out):
        bits, into = rows.view(kind), out.view(kind)
        for n in range(len(bits)):
            row, found = bits[n], least
            for k in range(len(row)):
                found = max(found, kind(row[k] ^ ((row[k] >> sign) & rest)))
            into[n] = found ^ ((found >> sign) & rest)

    return by_bits
