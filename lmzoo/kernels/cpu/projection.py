"""One step of the projection from a recurrence's input to a gate, and its gradient.

    project_inputs      a_t = x_t W + b,  or projected[w_t] for tokens w, projected = table W + b
    project_gradients   ∂L/∂W += x_tᵀ d_t,  ∂L/∂b += Σ_b d_tb,  ∂L/∂x_t += d_t Wᵀ
                        or sums[w_t] += d_t for tokens, with d_t = ∂L/∂a_t

`inputs` is an `InputProjection`, `gradients` a `ProjectionGradient` (`inputs.py`). An absent array
has no elements. t is the step, p the pack member.
"""

from typing import no_type_check

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled


@compiled
@no_type_check
def project_inputs(inputs, t, p, out):
    """Write the inputs' part of the pre-activations (B, G); return False at an invalid token."""
    if inputs.projected.size > 0:
        tokens, projected = inputs.tokens[t, p], inputs.projected[p]
        for b in range(len(tokens)):
            v = tokens[b]
            if not 0 <= v < len(projected):
                return False
            out_, row = out[b], projected[v]
            for i in range(len(out_)):
                out_[i] = row[i]
        return True
    biased = inputs.bias.size > 0
    if biased:
        bias = inputs.bias[p]
        for b in range(len(out)):
            out_ = out[b]
            for i in range(len(out_)):
                out_[i] = bias[i]
    if inputs.weight.size > 0:
        product(inputs.x[t, p], inputs.weight[p], out, biased)
    elif not biased:
        out[:] = 0
    return True


@compiled
@no_type_check
def project_gradients(gradients, t, p, d):
    """Add one step's part of the gradients of weight, bias and inputs, from d (B, G)."""
    if gradients.sums.size > 0:
        tokens, sums = gradients.tokens[t, p], gradients.sums[p]
        for b in range(len(tokens)):
            d_, row = d[b], sums[tokens[b]]
            for i in range(len(d_)):
                row[i] += d_[i]
        return
    if gradients.weight.size > 0:
        add_outer(gradients.x[t, p], d, gradients.weight_grad[p])
        product_transposed(d, gradients.weight[p], gradients.x_grad[t, p], not gradients.first)
    if gradients.bias_grad.size > 0:
        total = gradients.bias_grad[p]
        for b in range(len(d)):
            d_ = d[b]
            for i in range(len(d_)):
                total[i] += d_[i]
