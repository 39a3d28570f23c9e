"""The equations of the MGRU, for all 4,096 patterns of switches at once."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tests.cells.support import LENGTH, WIDTH, make


def weights(width: int = WIDTH, length: int = LENGTH) -> dict[str, Tensor]:
    """Return all weights that a pattern may use: gate, candidate, and both kinds of attention."""
    key = make("mgru", width, length, carry="prior", prior=False)
    bilinear = make("mgru", width, length, carry="bilinear", heads=2)
    names = {"w.hf": key, "w.xh": key, "attend.key": key}
    names |= {"attend.form": bilinear, "attend.mix.weight": bilinear}
    return {name: dict(cell.named_parameters())[name].detach() for name, cell in names.items()}


def gate_input(h: Tensor, m: Mapping[int, Tensor]) -> Tensor:
    """Return what the gate reads: h; h − ½ with 6 but not 7; ½ logit(h) with 9 as well."""
    logit = torch.atanh((2 * h - 1).clamp(-0.9999, 0.9999))
    return torch.where(m[6] & ~m[7], torch.where(m[9], logit, h - 0.5), h)


def carried(outputs: list[Tensor], h: Tensor, w: dict[str, Tensor], m: Mapping) -> Tensor:
    """Return j after the first step: h, or attention over o_0..o_{t-1}; 10 wins over 11."""
    earlier = torch.stack(outputs, dim=2)  # P B s H
    by_key = ((earlier @ w["attend.key"]).softmax(2) * earlier).sum(2)
    scores = torch.einsum("pbsh,whk,pbk->pbsw", earlier, w["attend.form"], h)
    by_query = ((scores @ w["attend.mix.weight"].T).softmax(2) * earlier).sum(2)
    return torch.where(m[10], by_key, torch.where(m[11], by_query, h))


def mgru(w: dict[str, Tensor], mutated: Tensor, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and states (P, B, T, H) of P patterns, rows of `mutated`, without Λ."""
    m = dict(enumerate(mutated.T[:, :, None, None]))
    u = {i: (~on).to(x.dtype) for i, on in m.items()}
    h, outputs, states = start.expand(len(mutated), *start.shape), [], []
    for x_t in x.unbind(1):
        f = torch.sigmoid(u[0] * (gate_input(h, m) @ w["w.hf"]))
        candidate = u[1] * (x_t @ w["w.xh"])
        g = torch.where(m[4], torch.sigmoid(candidate), torch.tanh(candidate))
        j = carried(outputs, h, w, m) if outputs else h
        h = u[2] * (1 - f) * j + u[3] * f * g + m[5] * f * j
        states.append(h)
        outputs.append(torch.where(m[6] & ~m[8], h - 0.5, h))
    return torch.stack(outputs, dim=2), torch.stack(states, dim=2)
