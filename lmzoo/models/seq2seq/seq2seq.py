r"""Sequence to sequence through one vector: the encoder's last state begins the decoder.

    h^enc_i, s^enc_i = encoder(e'(x_i), s^enc_{i-1})        s^enc_0 = 1
    h_t, s_t = decoder(e(y_{t-1}), s_{t-1})                 s_0 = s^enc_n
    P(y_t | y_<t, x) = softmax( Emb h_t )

Whatever the source says must pass through s^enc_n: the bottleneck that attention removes.

Sutskever, Vinyals & Le 2014 (arXiv:1409.3215); S3; zoo.md 4.3.
"""

from torch import Tensor

from lmzoo.cells.base import State
from lmzoo.config import config
from lmzoo.contract import model
from lmzoo.models.seq2seq.base import RecurrentSeq2Seq, Seq2SeqConfig
from lmzoo.models.seq2seq.reader import read


@model(
    "seq2seq",
    family="seq2seq",
    document="S3",
    source="Sutskever, Vinyals & Le 2014 (arXiv:1409.3215)",
)
class Seq2Seq(RecurrentSeq2Seq):
    """Encoder and decoder joined by the encoder's last state."""

    @config
    class Config(Seq2SeqConfig):
        """Size and parts."""

    def start(self, source: Tensor, source_lengths: Tensor) -> State:
        return read(self.encoder, self.source_embedding(source), source_lengths)[1]

    def step(self, x: Tensor, carried: State) -> tuple[Tensor, State]:
        return self.decoder.advance(x, carried)
