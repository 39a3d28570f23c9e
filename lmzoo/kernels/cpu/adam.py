"""The loop of `fuse/adam.py`: its symbols, a row a member."""

from math import sqrt
from typing import no_type_check

from lmzoo.kernels.cpu.compiled import compiled


@compiled
@no_type_check
def move(x, g, m, v, steps, rates, clips, decays, decoupled, beta1, beta2, eps):
    """Move every row of x, m and v, and count the step."""
    number = x.dtype.type
    for p in range(len(x)):
        row, slope, mean, square = x[p], g[p], m[p], v[p]
        total = number(0)
        for i in range(len(row)):
            total += slope[i] * slope[i]
        share = clips[p] / (sqrt(total) + number(1e-6))
        kept = number(1) if share > 1 else number(share)  # a NaN stays one
        steps[p] += 1
        whole1, whole2 = 1 - beta1 ** steps[p], 1 - beta2 ** steps[p]
        rate, spread, least = number(rates[p] / whole1), number(1 / sqrt(whole2)), number(eps)
        # Weight decay goes into the gradient; decoupled, onto the weights themselves.
        into = number(0 if decoupled else decays[p])
        onto = number(1 - rates[p] * decays[p] if decoupled else 1)
        new1, new2, old2 = number(1 - beta1), number(1 - beta2), number(beta2)
        for i in range(len(row)):
            one = slope[i] * kept + into * row[i]
            mean[i] += new1 * (one - mean[i])
            square[i] = old2 * square[i] + new2 * one * one
            row[i] = onto * row[i] - rate * mean[i] / (sqrt(square[i]) * spread + least)
