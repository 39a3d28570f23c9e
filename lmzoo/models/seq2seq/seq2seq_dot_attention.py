r"""Sequence-to-sequence model with dot-product attention to the source before each step.

    p_i   = softmax_i( h_{t-1} · h^enc_i )             over the real tokens of the source
    h_att = Σ_i p_i h^enc_i
    h_t, s_t = decoder( M [e(y_{t-1}) ; h_att], s_{t-1} )
    P(y_t | y_<t, x) = softmax( Emb h_t )

h^enc_i are the encoder outputs (E); y_t are target tokens; e(y) and h_t are (E), M is (E, 2E), Emb
is (V, E). h_0 and s_0 are the final output and state of the encoder. With bidirectional=True,
h^enc_i = M' [h→_i ; h←_i], and h_0 and s_0 come from the backward encoder, which ends at the first
token.

Source: Bahdanau, Cho & Bengio 2015 (arXiv:1409.0473); Luong et al. 2015 (arXiv:1508.04025); S3.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from pydantic import StrictBool
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, State
from lmzoo.contract import Task, model
from lmzoo.models.seq2seq.base import RecurrentSeq2Seq, Seq2SeqConfig, Source
from lmzoo.models.seq2seq.encoder import encode, encode_backward, last_output
from lmzoo.types import Lengths, Prefix


class AttentionState(NamedTuple):
    """Decoding state: the encoded source and the decoder's output and cell state."""

    source: Float[Tensor, "B S H"]
    """h^enc."""
    mask: Bool[Tensor, "B S"]
    """True at tokens of the source, False at pads."""
    h: Float[Tensor, "B H"]
    cell: State


@model(
    "seq2seq_dot_attention", family="seq2seq", document="S3",
    source="Luong et al. 2015 (arXiv:1508.04025)",
)  # fmt: skip
class Seq2SeqDotAttention(RecurrentSeq2Seq):
    """Recurrent encoder-decoder with dot-product attention to the source."""

    attention_memory = "source"

    @config
    class Config(Seq2SeqConfig):
        """Embedding, cell, emission and direction of the encoder."""

        bidirectional: StrictBool = False
        """Whether the encoder reads the source in both directions."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width = config.width
        self.join = nn.Linear(2 * width, width, bias=False)
        self.backward_encoder, self.fold = None, None
        if config.bidirectional:
            self.backward_encoder = CELLS.build(config.cell, width, task.source_length)
            self.fold = nn.Linear(2 * width, width, bias=False)

    @property
    def state_size(self) -> int | None:
        """Size of the decoder's state and output, and of h^enc and mask of the longest source."""
        size, width = self.decoder.state_size, self.config.width
        return None if size is None else size + width + self.task.source_length * (width + 1)

    def start(self, source: Source, source_lengths: Lengths) -> AttentionState:
        mask = torch.arange(source.shape[1], device=source.device) < source_lengths[:, None]
        x = self.source_embedding(source)
        h, cell = encode(self.encoder, x, source_lengths)
        if self.backward_encoder is None or self.fold is None:
            return AttentionState(h, mask, last_output(h, source_lengths), cell)
        back, cell = encode_backward(self.backward_encoder, x, source_lengths)
        return AttentionState(self.fold(torch.cat([h, back], dim=-1)), mask, back[:, 0], cell)

    def step(self, x: Tensor, state: AttentionState) -> tuple[Tensor, AttentionState]:
        h_att, _ = self.attend(state)
        joined = self.join(torch.cat([x, h_att], dim=-1))
        h, cell = self.decoder.advance(joined, state.cell)
        return h, state._replace(h=h, cell=cell)

    def attend(self, state: AttentionState) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B S"]]:
        """Return the attention output h_att and the weights p."""
        logits = torch.einsum("bh,bsh->bs", state.h, state.source)
        p = torch.softmax(logits.masked_fill(~state.mask, -torch.inf), dim=-1)
        return torch.einsum("bs,bsh->bh", p, state.source), p

    def attention_maps(
        self, tokens: Prefix, source: Source, source_lengths: Lengths
    ) -> Float[Tensor, "1 B 1 t S"]:
        """Return the attention weights p to the source tokens, with which s_{t+1} is predicted."""
        state, weights = self.start(source, source_lengths), []
        for x in self.embedding(tokens).unbind(1):
            weights.append(self.attend(state)[1])
            _, state = self.step(x, state)
        return torch.stack(weights, dim=1)[None, :, None]
