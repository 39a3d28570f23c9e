r"""Recurrent autoencoder: a cell encodes the sentence to E numbers, another decodes it.

    z   = h_enc, the encoder's output after e(s_{n-1}), .., e(s_1), e(s_0)
    h_t = cell(N(e(s_{t-1})), h_{t-1}),   h_0 = z          teacher-forced
    P(s_t | s_<t, z) = emission(N(h_t))

z, h_t and e(s) are (E). There is no noise and no prior. The score is a reconstruction because z is
computed from the scored tokens. In `next_log_prob` z is the code of the prefix.

Source: S0 (DLM53; DLM54: tanh RNN cells).
"""

from typing import ClassVar

import torch
from torch import Tensor

from lmzoo.base.registry import preset
from lmzoo.contract import Score, model
from lmzoo.models.latent.encoder_decoder import EncoderDecoderConfig, SentenceEncoderDecoder


@model("gru_autoencoder", aliases=("DLM53",), family="autoencoder", document="S0", source="S0")
class RecurrentAutoencoder(SentenceEncoderDecoder):
    """Autoencoder with a GRU encoder and a teacher-forced GRU decoder."""

    Config = EncoderDecoderConfig
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
    summary="Autoencoder with a tanh-RNN encoder and a teacher-forced tanh-RNN decoder.",
)  # fmt: skip
