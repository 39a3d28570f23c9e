"""The kernel of `train/pack_parameters.py`, in its symbols; one row per pack member."""

from math import sqrt

from lmzoo.kernels.cpu.compiled import compiled


@compiled
def adam_step(
    x,
    g,
    m,
    v,
    steps,
    rates,
    clips,
    decays,
    columns,
    decoupled,
    beta1,
    beta2,
    eps,
):
    """Clip g, update every row of x, m and v, and increment the step counts."""
    number = x.dtype.type
    for p in range(len(x)):
        row = x[p]
        gradient = g[p]
        mean = m[p]
        square = v[p]
        total = number(0)
        for i in range(len(row)):
            total += gradient[i] * gradient[i]
        ratio = clips[p] / (sqrt(total) + number(1e-6))
        # NaN stays NaN
        if ratio > 1:
            clip = number(1)
        else:
            clip = number(ratio)
        steps[p] += 1
        correction1 = 1 - beta1 ** steps[p]
        correction2 = 1 - beta2 ** steps[p]
        rate = number(rates[p] / correction1)
        scale = number(1 / sqrt(correction2))
        epsilon = number(eps)
        # Weight decay is added to the gradient; decoupled decay scales the weights. Both act on
        # the columns that decay.
        decay = number(0 if decoupled else decays[p])
        shrink = number(1 - rates[p] * decays[p] if decoupled else 1)
        new1 = number(1 - beta1)
        new2 = number(1 - beta2)
        old2 = number(beta2)
        for i in range(len(row)):
            d = gradient[i] * clip + decay * columns[i] * row[i]
            mean[i] += new1 * (d - mean[i])
            square[i] = old2 * square[i] + new2 * d * d
            kept = shrink if columns[i] > 0 else number(1)
            row[i] = kept * row[i] - rate * mean[i] / (sqrt(square[i]) * scale + epsilon)
