r"""Linear autoencoder: one affine map encodes a whole sentence, another decodes it.

    x = [ e(s_1); ..; e(s_{T-1}) ]
    z = x A + a,   [ y_1; ..; y_{T-1} ] = z D + d
    P(s_t | s) = emission(N(y_t))

x is ((T−1)·E), z and y_t are (E), A is ((T−1)·E, E), D is (E, (T−1)·E). The map from x to the y_t
is affine with a linear part of rank at most E. Options for noise on z: see `flat.py`.

Source: Baldi & Hornik 1989; Vincent et al. 2008 (denoising); S0 (DLM55).
"""

from torch import nn

from lmzoo.contract import Task, model
from lmzoo.models.latent.flat import FlatAutoencoder, FlatConfig


@model("linear_autoencoder", aliases=("DLM55",), family="autoencoder", document="S0", source="S0")
class LinearAutoencoder(FlatAutoencoder):
    """Autoencoder with one affine encoder and decoder, optionally denoising or Gaussian."""

    Config = FlatConfig

    def __init__(self, config: FlatConfig, task: Task) -> None:
        flat, width = (task.length - 1) * config.width, config.width
        super().__init__(config, task, nn.Linear(flat, width), nn.Linear(width, flat))
