r"""A linear autoencoder of whole sentences.

    z = x A + a,   y = z D + d           x of (T−1)·E numbers, z of E

Before the emission the map is affine in the embeddings and its rank is at most E: what
principal components would find, were it not for the mixture emission.

Baldi & Hornik 1989; `noise_std` after Vincent et al. 2008; S0 DLM55; zoo.md 2.4.
"""

from torch import nn

from lmzoo.contract import Task, model
from lmzoo.models.latent.flat import FlatAutoencoder, FlatConfig


@model("linear_autoencoder", aliases=("DLM55",), family="autoencoder", document="S0", source="S0")
class LinearAutoencoder(FlatAutoencoder):
    """One linear map in, one out; optionally denoising, or with a Gaussian code."""

    Config = FlatConfig

    def __init__(self, config: FlatConfig, task: Task) -> None:
        flat, width = (task.length - 1) * config.width, config.width
        super().__init__(config, task, nn.Linear(flat, width), nn.Linear(width, flat))
