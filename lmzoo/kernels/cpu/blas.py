r"""Matrix products inside kernels, by the BLAS library that torch itself uses.

    product              out = a w  + beta · out      a (B, H), w (H, G), out (B, G)
    product_transposed   out = d wᵀ + beta · out      d (B, G),           out (B, H)
    add_outer            out = qᵀ d + out             q (B, H), d (B, G), out (H, G)

Calling a torch operation costs as much as a small product itself, so kernels call `sgemm_` and
`dgemm_` of torch's library directly. These are Fortran routines: a row here is a column there.
The rows of an array may have gaps between them; the elements of a row may not.

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

# The compilers of Fortran end names with an underscore.
ROUTINES = {types.float32: "sgemm_", types.float64: "dgemm_"}
PREFIX = "lmzoo_"
"""Prefix of the symbols under which kernels, cached ones too, find the routines."""
PLAIN = False
TRANSPOSED = True
"""How `_gemm` reads a matrix."""


def _register_routines() -> bool:
    """Register the BLAS routines with the compiler; return False if torch's library has none."""
    for library in Path(torch.__file__).parent.glob("lib/*torch_cpu.*"):
        try:
            handle = ctypes.CDLL(str(library))
            routines = {name: getattr(handle, name) for name in ROUTINES.values()}
        # Not this file: it cannot be loaded, or has no BLAS; another one may.
        except (OSError, AttributeError):
            continue
        for name, routine in routines.items():
            llvm.add_symbol(PREFIX + name, ctypes.cast(routine, ctypes.c_void_p).value)
        return True
    return False


HAS_PRODUCTS = _register_routines()
"""Whether kernels that call products can run."""


@intrinsic
def _gemm(typing, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """C = op(A) op(B) + beta · C, for matrices in column order."""
    flags = (0, 1)
    sizes = (2, 3, 4, 6, 8, 11)
    number = c.dtype
    signature = types.void(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc)

    def codegen(context, builder, signature, args):
        # Fortran takes addresses: a number is put on the stack for the call.
        def on_stack(value):
            slot = cgutils.alloca_once(builder, value.type)
            builder.store(value, slot)
            return slot

        def pointer(i):
            value = args[i]
            kind = signature.args[i]
            if isinstance(kind, types.Array):
                return context.make_array(kind)(context, builder, value).data
            if i in flags:
                # BLAS takes a letter: T for transposed, N for not.
                transposed = ir.Constant(ir.IntType(8), ord("T"))
                plain = ir.Constant(ir.IntType(8), ord("N"))
                return on_stack(builder.select(value, transposed, plain))
            if i in sizes:
                # The library's integers have 32 bits.
                return on_stack(builder.trunc(value, ir.IntType(32)))
            return on_stack(context.cast(builder, value, kind, number))

        pointers = [pointer(i) for i in range(len(args))]
        # alpha comes after the three sizes; here it is always 1.
        alpha = ir.Constant(context.get_value_type(number), 1.0)
        pointers.insert(5, on_stack(alpha))
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in pointers])
        routine = cgutils.get_or_insert_function(builder.module, kind, PREFIX + ROUTINES[number])
        builder.call(routine, pointers)
        return context.get_dummy_value()

    return signature, codegen


@compiled
@no_type_check
def product(a, w, out, beta):
    """Out = a w + beta · out."""
    h, g = w.shape
    # In column order the arrays are transposed: outᵀ = wᵀ aᵀ, hence w comes first.
    _gemm(
        PLAIN,
        PLAIN,
        g,
        len(a),
        h,
        w,
        _stride(w),
        a,
        _stride(a),
        beta,
        out,
        _stride(out),
    )


@compiled
@no_type_check
def product_transposed(d, w, out, beta):
    """Out = d wᵀ + beta · out."""
    h, g = w.shape
    _gemm(
        TRANSPOSED,
        PLAIN,
        h,
        len(d),
        g,
        w,
        _stride(w),
        d,
        _stride(d),
        beta,
        out,
        _stride(out),
    )


@compiled
@no_type_check
def add_outer(q, d, out):
    """Add qᵀ d to out."""
    h = q.shape[1]
    g = d.shape[1]
    _gemm(
        PLAIN,
        TRANSPOSED,
        g,
        h,
        len(d),
        d,
        _stride(d),
        q,
        _stride(q),
        1,
        out,
        _stride(out),
    )


@compiled
def _stride(a):
    """Return the number of elements from a row to the next; a single row may have any stride."""
    return max(a.strides[0] // a.itemsize, a.shape[1], 1)
