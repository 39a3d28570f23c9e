r"""An autoencoder of whole sentences with one hidden layer on either side.

    z = relu( relu(x A_1 + a_1) A_2 + a_2 )          (T−1)·E → expansion · E → E
    y = relu(z D_1 + d_1) D_2 + d_2                  E → expansion · E → (T−1)·E

S0 DLM56; zoo.md 2.4.
"""

from typing import Annotated

from pydantic import Field
from torch import nn

from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.models.latent.flat import FlatAutoencoder, FlatConfig
from lmzoo.search_space import IntRange


@model("mlp_autoencoder", aliases=("DLM56",), family="autoencoder", document="S0", source="S0")
class MLPAutoencoder(FlatAutoencoder):
    """Two ReLU layers in, two layers out; optionally denoising, or with a Gaussian code."""

    @config
    class Config(FlatConfig):
        """How much wider than z the hidden layers are."""

        expansion: Annotated[int, IntRange(1, 16, log=True)] = Field(10, ge=1)

    def __init__(self, config: Config, task: Task) -> None:
        flat, width = (task.length - 1) * config.width, config.width
        hidden = config.expansion * width
        encoder = nn.Sequential(
            nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU()
        )
        decoder = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, flat))
        super().__init__(config, task, encoder, decoder)
