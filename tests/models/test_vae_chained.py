"""The chained VAE: ELBO ≤ importance-weighted bound ≤ log P, by quadrature over both latents."""

import torch
from numpy.polynomial.hermite_e import hermegauss

from lmzoo.models.gaussian_vae import ChainedVAE
from tests.laws.support import assert_close, next_log_prob
from tests.models.equivalence import small
from tests.models.exact_latents import log_prob_given_z
from tests.tiny import CLOSE, batch, every_sequence

NODES, COPIES = 16, 3000


def chained(**fields: object) -> ChainedVAE:
    model = small("chained_vae", width=2, code=1, norm="none", **fields)
    assert isinstance(model, ChainedVAE)
    return model


def exact_log_p(model: ChainedVAE, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return log P(s), summed over nodes of the code's noise (2) and of z (1)."""
    points, weights = (torch.tensor(a, dtype=torch.float32) for a in hermegauss(NODES))
    nodes = torch.cartesian_prod(points, points, points)
    weights = (weights / weights.sum()).log()
    log_weights = torch.cartesian_prod(weights, weights, weights).sum(1)
    c = model.z.decode(nodes[:, 2:]) + nodes[:, :2] / model.z.log_gamma.exp()
    scores = log_prob_given_z(model, tokens, lengths, torch.cat([c, nodes[:, 2:]], dim=1))
    return torch.logsumexp(log_weights[:, None] + scores, dim=0)


@torch.no_grad()
def test_likelihoods_sum_to_one_and_decoding_has_them() -> None:
    model = chained(samples=4096)
    tokens, lengths = every_sequence(model.task)
    tokens, lengths = tokens[::9], lengths[::9]
    log_p = exact_log_p(model, tokens, lengths)
    total = sum(
        next_log_prob(model, tokens[:, :t]).gather(1, tokens[:, t : t + 1])[:, 0]
        for t in range(1, model.task.length)
    )
    assert_close(total, log_p, 0.05, "log P by decoding, and exactly")


@torch.no_grad()
def test_the_decoder_reads_the_code_only() -> None:
    model = small("chained_vae")
    tokens, _ = batch(model.task)
    joint = torch.randn(2, len(tokens), 6, generator=torch.Generator().manual_seed(0))
    other = joint.clone()
    other[..., 4:] += 1
    assert_close(model.decode(tokens, other), model.decode(tokens, joint), CLOSE, "other z")
    other[..., :4] += 1
    assert (model.decode(tokens, other) - model.decode(tokens, joint)).abs().max() > 1e-3
