r"""A recurrent autoencoder: the sentence through E numbers and back.

    z = h_enc over s_{n-1}, .., s_1, s_0        no noise, no prior
    P(s_t | s_<t, z)                            teacher-forced from h_0 = z

The score is a reconstruction: z was computed from the very tokens that are scored.
`next_log_prob` lets z be the code of the prefix, the only text there is.

S0 DLM53, DLM54; zoo.md 2.4.
"""

from typing import ClassVar

import torch
from torch import Tensor

from lmzoo.catalogue import preset
from lmzoo.contract import Score, model
from lmzoo.models.latent.decoder import DecoderConfig, SentenceDecoder


@model("gru_autoencoder", aliases=("DLM53",), family="autoencoder", document="S0", source="S0")
class RecurrentAutoencoder(SentenceDecoder):
    """GRU encoder and teacher-forced GRU decoder, joined by one vector."""

    Config = DecoderConfig
    score: ClassVar[Score] = Score.RECONSTRUCTION

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.decode(tokens, self.encode(tokens, lengths)[None])[0]

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        lengths = torch.full((len(prefix),), prefix.shape[1], device=prefix.device)
        y = self.outputs(prefix, self.encode(prefix, lengths)[None])[0, :, -1]
        return self.emission.dense(y, self.embedding.weight)


preset(
    "rnn_autoencoder", model="gru_autoencoder", fields={"cell": "rnn"}, aliases=("DLM54",),
    family="autoencoder", score="reconstruction", document="S0", source="S0",
    summary="Tanh-RNN encoder and teacher-forced decoder, joined by one vector.",
)  # fmt: skip
