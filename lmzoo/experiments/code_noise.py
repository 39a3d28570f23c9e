r"""What a flat autoencoder's reconstruction costs when noise σ is put on its code.

    z = encode(s)        NLL(σ) = mean over ε ~ N(0, 1) of −log P(s | z + σ ε), per token
    spread               root mean square over channels of z's standard deviation over sentences

σ alone says little: an encoder that doubles z halves what σ does. So σ is also given as a
share of the spread. Whatever noise the model was trained with is left out here: σ is all there
is, and all sequences and all σ share the same draws.

S0 (DLM55 "collapses" under noise); Vincent et al. 2008; zoo.md 2.4.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.contract import mask_unscored
from lmzoo.data.batches import gather_batch
from lmzoo.data.corpus import Sequences
from lmzoo.functional.noise import normal, shared_uniforms
from lmzoo.models.latent.flat import FlatAutoencoder

BATCH = 500


@torch.no_grad()
def codes(model: FlatAutoencoder, part: Sequences) -> Float[Tensor, "N E"]:
    """Each sequence's z, before noise."""
    model.eval()
    return torch.cat([model.encode(some.tokens, some.lengths) for some in _batches(part)])


def spread(z: Float[Tensor, "N E"]) -> float:
    """How far codes lie apart: a channel's standard deviation, root mean square over channels."""
    return float(z.double().var(0).mean().sqrt())


@torch.no_grad()
def loss_under_noise(
    model: FlatAutoencoder, part: Sequences, sigma: float, *, draws: int = 8
) -> float:
    """NLL(σ) in nats per scored token."""
    model.eval()
    width = model.config.width
    eps = normal(shared_uniforms((draws, 1, width), model.embedding.weight))
    nll = 0.0
    for some in _batches(part):
        y = model.decode(model.encode(some.tokens, some.lengths) + sigma * eps)
        told = model.emission.log_prob(
            y[:, :, : some.tokens.shape[1] - 1], some.tokens[:, 1:], model.embedding.weight
        )
        nll -= float(mask_unscored(some.tokens, some.lengths, told.mean(0)).double().sum())
    return nll / part.scored


def _batches(part: Sequences) -> Iterator[Sequences]:
    for rows in torch.arange(len(part)).split(BATCH):
        yield gather_batch(part, rows)
