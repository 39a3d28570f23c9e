r"""Sequence-to-sequence model: the encoder's final state is the decoder's initial state.

    h^enc_i, s^enc_i = encoder(e'(x_i), s^enc_{i-1})        s^enc_0 = 1
    h_t, s_t = decoder(e(y_{t-1}), s_{t-1})                 s_0 = s^enc_n
    P(y_t | y_<t, x) = softmax( Emb h_t )

x_i are source tokens, y_t target tokens, e' and e their embeddings (E); h^enc_i and h_t are (E),
Emb is (V, E). All information about the source passes through s^enc_n.

Source: Sutskever, Vinyals & Le 2014 (arXiv:1409.3215); S3.
"""

from torch import Tensor

from lmzoo.base.config import config
from lmzoo.cells.base import State
from lmzoo.contract import model
from lmzoo.models.seq2seq.base import RecurrentSeq2Seq, Seq2SeqConfig
from lmzoo.models.seq2seq.encoder import encode


@model(
    "seq2seq", family="seq2seq", document="S3",
    source="Sutskever, Vinyals & Le 2014 (arXiv:1409.3215)",
)  # fmt: skip
class Seq2Seq(RecurrentSeq2Seq):
    """Recurrent encoder-decoder that passes the source through one state vector."""

    @config
    class Config(Seq2SeqConfig):
        """Embedding, cell and emission."""

    def start(self, source: Tensor, source_lengths: Tensor) -> State:
        return encode(self.encoder, self.source_embedding(source), source_lengths)[1]

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.advance(x, state)
