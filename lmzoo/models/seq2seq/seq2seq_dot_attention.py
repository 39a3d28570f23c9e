r"""Sequence to sequence whose decoder looks back at the source before each step.

    p_i   = softmax_i( h_{t-1} · h^enc_i )             over the real tokens of the source
    h_att = Σ_i p_i h^enc_i
    h_t, s_t = decoder( M [e(y_{t-1}) ; h_att], s_{t-1} )
    P(y_t | y_<t, x) = softmax( Emb h_t )

h_{t-1} is fed as well, as the decoder's own state. h_0 and s_0 are where the encoder ended.
With `bidirectional`, h^enc_i = M' [h→_i ; h←_i] and the decoder begins where the backward
encoder ended, at the source's first token.

Bahdanau, Cho & Bengio 2015 (arXiv:1409.0473); Luong et al. 2015 (arXiv:1508.04025); S3; zoo.md 4.3.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from pydantic import StrictBool
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, State
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.models.seq2seq.base import RecurrentSeq2Seq, Seq2SeqConfig, Source
from lmzoo.models.seq2seq.reader import at_last, read, read_backward
from lmzoo.types import Lengths, Prefix


class Memory(NamedTuple):
    """What the decoder carries: the source as it was read, and where itself stands."""

    source: Float[Tensor, "B S H"]
    """h^enc."""
    real: Bool[Tensor, "B S"]
    h: Float[Tensor, "B H"]
    state: State


@model(
    "seq2seq_dot_attention",
    family="seq2seq",
    document="S3",
    source="Luong et al. 2015 (arXiv:1508.04025)",
)
class Seq2SeqDotAttention(RecurrentSeq2Seq):
    """Encoder and decoder joined by dot-product attention and the encoder's last state."""

    @config
    class Config(Seq2SeqConfig):
        """Whether the encoder reads both ways."""

        bidirectional: StrictBool = False

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
        """The decoder's own, and h^enc of the longest source."""
        own = self.decoder.state_size
        return None if own is None else own + self.task.source_length * self.config.width

    def start(self, source: Source, source_lengths: Lengths) -> Memory:
        real = torch.arange(source.shape[1], device=source.device) < source_lengths[:, None]
        x = self.source_embedding(source)
        h, state = read(self.encoder, x, source_lengths)
        if self.backward_encoder is None or self.fold is None:
            return Memory(h, real, at_last(h, source_lengths), state)
        back, state = read_backward(self.backward_encoder, x, source_lengths)
        return Memory(self.fold(torch.cat([h, back], dim=-1)), real, back[:, 0], state)

    def step(self, x: Tensor, carried: Memory) -> tuple[Tensor, Memory]:
        h_att, _ = self.attend(carried)
        joined = self.join(torch.cat([x, h_att], dim=-1))
        h, state = self.decoder.advance(joined, carried.state)
        return h, carried._replace(h=h, state=state)

    def attend(self, carried: Memory) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B S"]]:
        """(h_att, p)."""
        logits = torch.einsum("bh,bsh->bs", carried.h, carried.source)
        p = torch.softmax(logits.masked_fill(~carried.real, -torch.inf), dim=-1)
        return torch.einsum("bs,bsh->bh", p, carried.source), p

    def attention_map(
        self, tokens: Prefix, source: Source, source_lengths: Lengths
    ) -> Float[Tensor, "B t S"]:
        """p before each step: how much predicting s_{t+1} looked at each source token."""
        carried, looks = self.start(source, source_lengths), []
        for x in self.embedding(tokens).unbind(1):
            looks.append(self.attend(carried)[1])
            _, carried = self.step(x, carried)
        return torch.stack(looks, dim=1)
