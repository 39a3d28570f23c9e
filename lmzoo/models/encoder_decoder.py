"""Recurrent encoders and decoders of sentences, and the autoencoder."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.blocks.latent import EmbeddedModel
from lmzoo.blocks.layers import EmbeddingConfig
from lmzoo.cells.base import CELLS, CellChoice
from lmzoo.contract import Score, Task, model
from lmzoo.emissions.base import EMISSIONS, EmissionChoice
from lmzoo.functional.normalise import Norm, normalise_sequence, normalise_vectors
from lmzoo.functional.sequence import full_lengths, reversed_order
from lmzoo.types import Features, Lengths, Prefix, SequenceVectors


@config
class EncoderDecoderConfig(EmbeddingConfig):
    """Embedding, cell, emission and normaliser. E is also the size of z."""

    cell: CellChoice = "gru"
    """Cell of the encoder and of the decoder, which have separate weights."""
    emission: EmissionChoice = "mixture"
    norm: Norm = Norm.RMS
    """Normaliser N of the decoder's inputs and outputs."""


def last_output(outputs: Features, lengths: Lengths) -> SequenceVectors:
    """Return the output at the last of each sequence's tokens."""
    width = outputs.shape[2]
    last = (lengths - 1).clamp_min(0)
    index = last[:, None, None].expand(-1, 1, width)
    found = outputs.gather(1, index)
    return found[:, 0]


class SentenceEncoderDecoder(EmbeddedModel):
    """Encoder and teacher-forced decoder; a subclass computes z from h_enc.

        h_enc = encoder over e(s_{n-1}), e(s_{n-2}), ..          from a state of ones
        h_t   = cell(N(e(s_{t-1})), h_{t-1}),   h_0 = z          decoder, teacher-forced
        P(s_t | s_<t, z) = emission(N(h_t))

    z, h_t and e(s) are (E). For a fixed z the decoder is a recurrent language model and has the
    same parameter names. A cell with several state vectors (LSTM) starts with z in each of them; a
    cell whose states are Bernoulli parameters (MGRU, squash=sigmoid) starts with σ(z).
    """

    causal: ClassVar[bool] = False
    """The encoder reads the whole sentence, by design."""

    def __init__(self, config: Any, task: Task):
        super().__init__(config, task)
        width = config.width
        self.encoder = CELLS.build(config.cell, width, task.length)
        self.cell = CELLS.build(config.cell, width, task.length)
        self.emission = EMISSIONS.build(config.emission, width, config.norm)

    @property
    def leaks(self) -> str:
        if self.cell.input_blind:
            return ""
        return self.config.norm.leak

    def encode(self, tokens: Prefix, lengths: Lengths) -> SequenceVectors:
        """Return the output after e(s_{n-1}), .., e(s_0), which are not normalised.

        Pads come last and do not affect it; the published code reads them first. It is the state h,
        except for an MGRU with `output=centred` (h − ½).
        """
        x = self.embedding(tokens)
        # Reversed within its length: the encoder reads each sentence before its pads.
        order = reversed_order(lengths, x.shape[1])
        order = order[..., None].expand_as(x)
        # Models start from ones (`Cell.zero_start`).
        start = x.new_ones(len(x), self.cell.start_size)
        backwards = x.gather(1, order)
        outputs = self.encoder.scan(backwards, start)
        return last_output(outputs, lengths)

    def outputs(
        self,
        tokens: Prefix,
        z: Float[Tensor, "S B E"],
    ) -> Float[Tensor, "S B t E"]:
        """Return N(h) after each token, from each z."""
        norm = self.config.norm
        embedded = self.embedding(tokens)
        x = normalise_sequence(embedded, norm)
        # All draws of z run as one batch, the draw as the outer index.
        rows = z.flatten(0, 1)
        start = self.cell.constrain_start(rows)
        # An LSTM starts with z in h and in c.
        start = start.repeat(1, self.cell.num_state_vectors)
        repeated = x.repeat(len(z), 1, 1)
        h = self.cell.scan(repeated, start)
        by_draw = h.unflatten(0, z.shape[:2])
        return normalise_vectors(by_draw, norm)

    def decode(
        self,
        tokens: Prefix,
        z: Float[Tensor, "S B E"],
    ) -> Float[Tensor, "S B t-1"]:
        """Return log P(s_t | s_<t, z) of all tokens but the first."""
        y = self.outputs(tokens[:, :-1], z)
        targets = tokens[:, 1:]
        return self.emission.log_prob(y, targets, self.table)


@model(
    "gru_autoencoder",
    aliases=("DLM53",),
    family="autoencoder",
    document="S0",
    source="S0",
)
class RecurrentAutoencoder(SentenceEncoderDecoder):
    """Autoencoder with a GRU encoder and a teacher-forced GRU decoder.

        z   = h_enc, the encoder's output after e(s_{n-1}), .., e(s_1), e(s_0)
        h_t = cell(N(e(s_{t-1})), h_{t-1}),   h_0 = z          teacher-forced
        P(s_t | s_<t, z) = emission(N(h_t))

    z, h_t and e(s) are (E). There is no noise and no prior. The score is a reconstruction because z
    is computed from the scored tokens. In `next_log_prob` z is the code of the prefix.
    """

    Config = EncoderDecoderConfig
    score: ClassVar[Score] = Score.RECONSTRUCTION

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        z = self.encode(tokens, lengths)
        scores = self.decode(tokens, z[None])
        return scores[0]

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        z = self.encode(prefix, full_lengths(prefix))
        outputs = self.outputs(prefix, z[None])
        y = outputs[0, :, -1]
        return self.emission.dense(y, self.table)
