r"""Products inside compiled loops, by the routine that torch's own products end in.

    product    out = a w  + keep · out      a (B, H), w (H, G), out (B, G)
    back       out = d wᵀ + keep · out      d (B, G),           out (B, H)
    outer      out + qᵀ d                   q (B, H), d (B, G), out (H, G)

To call an operation of torch costs as much as a small product takes; a compiled loop calls BLAS
itself, which torch's library brings, or is linked to (`sgemm_`, `dgemm_`: Fortran's, so that a
row here is a column there). An array's rows may lie apart, the numbers of a row may not.

Dongarra et al. 1990 (doi:10.1145/77626.79170).
"""

import ctypes
from pathlib import Path
from typing import no_type_check

import llvmlite.binding as llvm
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lmzoo.kernels.cpu.compiled import compiled

ROUTINES = {types.float32: "sgemm_", types.float64: "dgemm_"}
OURS = "lmzoo_"
"""Before a routine's name where loops look for it, those that are kept on disk too."""
PLAIN, TURNED = False, True
"""How a matrix is read: as it lies, or rows for columns."""


def _find() -> bool:
    """Tell the compiler where the routines are; False if torch's library offers none."""
    for library in Path(torch.__file__).parent.glob("lib/*torch_cpu.*"):
        try:
            routines = ctypes.CDLL(str(library))
            found = {name: getattr(routines, name) for name in ROUTINES.values()}
        except (OSError, AttributeError):
            continue
        for name, routine in found.items():
            llvm.add_symbol(OURS + name, ctypes.cast(routine, ctypes.c_void_p).value)
        return True
    return False


FOUND = _find()
"""Whether there are products; without them no loop that makes any can be called."""


@intrinsic
@no_type_check
def _gemm(typing, turn_a, turn_b, m, n, k, a, lda, b, ldb, keep, c, ldc):
    """C = op(A) op(B) + keep · C, of the memory of arrays, columns in turn."""
    turns, sizes, number = (0, 1), (2, 3, 4, 6, 8, 11), c.dtype
    given = types.void(turn_a, turn_b, m, n, k, a, lda, b, ldb, keep, c, ldc)

    def codegen(context, builder, signature, args):
        def place(value):
            room = cgutils.alloca_once(builder, value.type)
            builder.store(value, room)
            return room

        def pointer(i):
            value, kind = args[i], signature.args[i]
            if isinstance(kind, types.Array):
                return context.make_array(kind)(context, builder, value).data
            if i in turns:
                letters = (ir.Constant(ir.IntType(8), ord(letter)) for letter in "TN")
                return place(builder.select(value, *letters))
            if i in sizes:
                return place(builder.trunc(value, ir.IntType(32)))
            return place(context.cast(builder, value, kind, number))

        pointers = [pointer(i) for i in range(len(args))]
        pointers.insert(5, place(ir.Constant(context.get_value_type(number), 1.0)))
        kind = ir.FunctionType(ir.VoidType(), [one.type for one in pointers])
        routine = cgutils.get_or_insert_function(builder.module, kind, OURS + ROUTINES[number])
        builder.call(routine, pointers)
        return context.get_dummy_value()

    return given, codegen


@compiled
@no_type_check
def product(a, w, out, keep):
    """Out = a w + keep · out."""
    h, g = w.shape
    _gemm(PLAIN, PLAIN, g, len(a), h, w, _lead(w), a, _lead(a), keep, out, _lead(out))


@compiled
@no_type_check
def back(d, w, out, keep):
    """Out = d wᵀ + keep · out."""
    _gemm(
        TURNED, PLAIN, len(w), len(d), w.shape[1], w, _lead(w), d, _lead(d), keep, out, _lead(out)
    )


@compiled
@no_type_check
def outer(q, d, out):
    """Add qᵀ d to out."""
    _gemm(
        PLAIN, TURNED, d.shape[1], q.shape[1], len(d), d, _lead(d), q, _lead(q), 1, out, _lead(out)
    )


@compiled
@no_type_check
def _lead(a):
    """Numbers from a row to the next; of a single row the stride may be anything."""
    return max(a.strides[0] // a.itemsize, a.shape[1], 1)
