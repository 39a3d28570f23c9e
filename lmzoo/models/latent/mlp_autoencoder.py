r"""MLP autoencoder: two-layer networks encode and decode a whole sentence.

    x = [ e(s_1); ..; e(s_{T-1}) ]
    z = relu( relu(x A_1 + a_1) A_2 + a_2 )                   (T−1)·E → expansion · E → E
    [ y_1; ..; y_{T-1} ] = relu(z D_1 + d_1) D_2 + d_2        E → expansion · E → (T−1)·E
    P(s_t | s) = emission(N(y_t))

x is ((T−1)·E), z and y_t are (E). Options for noise on z: see `flat.py`.

Source: S0 (DLM56).
"""

from typing import Annotated

from pydantic import Field
from torch import nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.contract import Task, model
from lmzoo.models.latent.flat import FlatAutoencoder, FlatConfig


@model("mlp_autoencoder", aliases=("DLM56",), family="autoencoder", document="S0", source="S0")
class MLPAutoencoder(FlatAutoencoder):
    """Autoencoder with a two-layer encoder and decoder, optionally denoising or Gaussian."""

    @config
    class Config(FlatConfig):
        """Flat autoencoder fields and the hidden size."""

        expansion: Annotated[int, IntRange(1, 16, log=True)] = Field(10, ge=1)
        """Hidden size as a multiple of E."""

    def __init__(self, config: Config, task: Task) -> None:
        flat, width = (task.length - 1) * config.width, config.width
        hidden = config.expansion * width
        encoder = nn.Sequential(
            nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU()
        )
        decoder = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, flat))
        super().__init__(config, task, encoder, decoder)
