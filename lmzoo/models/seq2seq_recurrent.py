"""Recurrent sequence-to-sequence models, with and without attention to the source."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, StrictBool, model_validator
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingConfig, EmbeddingTable
from lmzoo.cells.base import CELLS, Cell, CellChoice, State
from lmzoo.cells.stacked import HierarchicalMultiscaleLSTM
from lmzoo.contract import DecodingState, Score, Task, model
from lmzoo.emissions.base import EmissionChoice
from lmzoo.functional.normalise import Norm
from lmzoo.functional.sequence import reversed_order
from lmzoo.functional.token_scores import length_mask
from lmzoo.models.encoder_decoder import last_output
from lmzoo.types import Hidden, Lengths, NextScores, Prefix, SequenceVectors, SourceVectors


def encode(
    cell: Cell,
    x: SourceVectors,
    lengths: Lengths,
) -> tuple[Float[Tensor, "B S H"], State]:
    """Encode forwards: return the outputs, undefined at pads, and each source's final state.

    h_i, s_i = cell(x_i, s_{i-1})        i = 1..n, s_0 a state of ones
    """
    # Models start from ones (`Cell.zero_start`).
    start = x.new_ones(len(x), cell.start_size)
    state = cell.initial_state(start)
    outputs = []
    every = cell.project(x)
    for i, projected in enumerate(every.unbind(1)):
        h, next_state = cell.step(projected, state)
        kept = []
        # A shorter source keeps the state of its last token while the others go on.
        for new, old in zip(next_state, state, strict=True):
            axes = new.dim() - 1  # a state may be a matrix
            shape = [-1] + [1] * axes
            is_real = (i < lengths).view(shape)
            kept.append(torch.where(is_real, new, old))
        state = tuple(kept)
        outputs.append(h)
    return torch.stack(outputs, 1), state


def encode_backward(
    cell: Cell, x: SourceVectors, lengths: Lengths
) -> tuple[Float[Tensor, "B S H"], State]:
    """Encode from the last token to the first; outputs are at the positions of their tokens."""
    order = reversed_order(lengths, x.shape[1])
    order = order[..., None].expand_as(x)
    backwards = x.gather(1, order)
    outputs, state = encode(cell, backwards, lengths)
    # Reversing twice restores the order.
    return outputs.gather(1, order), state


Source = Int[Tensor, "B S"]


@config
class Seq2SeqConfig(EmbeddingConfig):
    """Embedding, cell and emission."""

    cell: CellChoice = "gru"
    """Cell of the encoder and of the decoder, which have separate weights."""
    emission: EmissionChoice = "vector"


class RecurrentSeq2Seq(FeatureModel):
    """Base class: a subclass encodes the source and defines one decoder step.

        state_0 = start(source)
        h_t, state_t = step(e(s_{t-1}), state_{t-1})        t = 1..T-1
        P(s_t | s_<t, source) = emission(h_t)

    e(s) and h_t are (E). Source and target have their own embedding tables. Encoder and decoder use
    the same kind of cell, so that the final state of the encoder can be the initial state of the
    decoder. A cell whose state grows with the prefix has no such final state and is refused.

    Source: Sutskever, Vinyals & Le 2014 (arXiv:1409.3215); S3.
    """

    Config = Seq2SeqConfig
    emission_norm = Norm.NONE
    score: ClassVar[Score] = Score.CONDITIONAL
    conditional: ClassVar[bool] = True

    def __init__(self, config: Seq2SeqConfig, task: Task):
        width = config.width
        std = config.embedding_std
        super().__init__(config, task, std)
        # Their vocabularies differ: two languages, or symbols and their classes.
        self.source_embedding = EmbeddingTable(task.source_vocab, width, std)
        self.encoder = CELLS.build(config.cell, width, task.source_length)
        self.decoder = CELLS.build(config.cell, width, task.length)
        if isinstance(self.decoder, HierarchicalMultiscaleLSTM) and self.decoder.config.anneal:
            raise UserError(
                f"cell.anneal={self.decoder.config.anneal}: the slope grows with scans and a "
                "decoder does not scan; set cell.slope and drop cell.anneal"
            )
        if self.decoder.state_size is None:
            cell = CELLS.name_of(config.cell)
            raise UserError(
                f"cell {cell!r} with these fields has a state that grows with the prefix, which a "
                "decoder cannot start from; use a cell with a fixed state size, such as gru or lstm"
            )

    @property
    def state_size(self) -> int | None:
        return self.decoder.state_size

    @abstractmethod
    def start(self, source: Source, source_lengths: Lengths) -> DecodingState:
        """Encode the source and return the initial state of the decoder."""

    @abstractmethod
    def step(self, x: SequenceVectors, state: Any) -> tuple[Hidden, DecodingState]:
        """Return the decoder's output after one more token, and its new state."""

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        source, source_lengths = sources
        state = self.start(source, source_lengths)
        outputs = []
        # Step by step: with attention, the input of a step depends on the output of the last one.
        embedded = self.embedding(tokens)
        for x in embedded.unbind(1):
            h, state = self.step(x, state)
            outputs.append(h)
        return torch.stack(outputs, 1)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        source, source_lengths = self.conditioning_inputs(sources)
        return self.start(source, source_lengths)

    def advance(self, state: DecodingState, token: Tensor) -> tuple[NextScores, DecodingState]:
        x = self.embedding(token)
        h, state = self.step(x, state)
        scores = self.emission.dense(h, self.embedding.weight)
        return scores, state


@model(
    "seq2seq",
    family="seq2seq",
    document="S3",
    source="Sutskever, Vinyals & Le 2014 (arXiv:1409.3215)",
)
class Seq2Seq(RecurrentSeq2Seq):
    """Recurrent encoder-decoder that passes the source through one state vector.

        h^enc_i, s^enc_i = encoder(e'(x_i), s^enc_{i-1})        s^enc_0 = 1
        h_t, s_t = decoder(e(y_{t-1}), s_{t-1})                 s_0 = s^enc_n
        P(y_t | y_<t, x) = softmax( Emb h_t )

    x_i are source tokens, y_t target tokens, e' and e their embeddings (E); h^enc_i and h_t are
    (E), Emb is (V, E). All information about the source passes through s^enc_n.
    """

    def start(self, source: Tensor, source_lengths: Tensor) -> State:
        x = self.source_embedding(source)
        _, state = encode(self.encoder, x, source_lengths)
        return state

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.advance(x, state)


class AttentionState(NamedTuple):
    """Decoding state: the encoded source and the decoder's output and cell state."""

    source: Float[Tensor, "B S H"]
    """h^enc."""
    mask: Bool[Tensor, "B S"]
    """True at tokens of the source, False at pads."""
    h: Hidden
    cell: State


@model(
    "seq2seq_dot_attention",
    family="seq2seq",
    document="S3",
    source="Luong et al. 2015 (arXiv:1508.04025)",
)
class Seq2SeqDotAttention(RecurrentSeq2Seq):
    """Recurrent encoder-decoder with dot-product attention to the source.

        p_i   = softmax_i( h_{t-1} · h^enc_i )             over the real tokens of the source
        h_att = Σ_i p_i h^enc_i
        h_t, s_t = decoder( M [e(y_{t-1}) ; h_att], s_{t-1} )       folded=True
                 | decoder( [e(y_{t-1}) ; h_att], s_{t-1} )         folded=False, as in S3
        P(y_t | y_<t, x) = softmax( Emb h_t )

    h^enc_i are the encoder outputs (E); y_t are target tokens; e(y) and h_t are (E), M is (E, 2E),
    Emb is (V, E). With folded=False the weights of the decoder's inputs have 2E columns: the gates
    read h_att by a map of their own, not through the E numbers of M [..]. h_0 and s_0 are the final
    output and state of the encoder. With bidirectional=True, h^enc_i = M' [h→_i ; h←_i], and h_0
    and s_0 come from the backward encoder, which ends at the first token.

    Source: Bahdanau, Cho & Bengio 2015 (arXiv:1409.0473); Luong et al. 2015 (arXiv:1508.04025); S3.
    """

    attention_memory = "source"

    @config
    class Config(Seq2SeqConfig):
        """Embedding, cell, emission and direction of the encoder."""

        bidirectional: StrictBool = False
        """Whether the encoder reads the source in both directions."""
        folded: StrictBool = Field(default=True, exclude_if=lambda folded: folded)
        """False: cells rnn, lstm and gru only."""

        @model_validator(mode="after")
        def _reads_two_vectors(self) -> Any:
            name = CELLS.name_of(self.cell)
            # The GRU with a misprinted reset multiplies its inputs: no sum of two maps.
            misprint = getattr(self.cell, "reset", "") == "input"
            if not self.folded and (name not in ("rnn", "lstm", "gru") or misprint):
                raise UserError(
                    f"folded=False: the inputs of cell {name} are not read by one linear map; "
                    "choose rnn, lstm or gru with reset=after or before, or set folded=True"
                )
            return self

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        if config.folded:
            self.join = nn.Linear(2 * width, width, bias=False)
        else:
            self.join = None
            # As many columns as the gates read: what `project` returns for one vector.
            zero = torch.zeros(1, 1, width)
            columns = self.decoder.project(zero).shape[-1]
            self.read = nn.Linear(width, columns, bias=False)
        self.backward_encoder = None
        self.fold = None
        if config.bidirectional:
            length = task.source_length
            self.backward_encoder = CELLS.build(config.cell, width, length)
            self.fold = nn.Linear(2 * width, width, bias=False)

    @property
    def state_size(self) -> int | None:
        """Size of the decoder's state and output, and of h^enc and mask of the longest source."""
        size = self.decoder.state_size
        width = self.config.width
        if size is None:
            return None
        source = self.task.source_length * (width + 1)
        return size + width + source

    def start(self, source: Source, source_lengths: Lengths) -> AttentionState:
        mask = length_mask(source_lengths, source.shape[1])
        x = self.source_embedding(source)
        h, cell = encode(self.encoder, x, source_lengths)
        if self.backward_encoder is None or self.fold is None:
            last = last_output(h, source_lengths)
            return AttentionState(h, mask, last, cell)
        # The state of the encoder that read the source last to first: it ends at its first token.
        back, cell = encode_backward(self.backward_encoder, x, source_lengths)
        outputs = torch.cat([h, back], -1)
        both = self.fold(outputs)
        return AttentionState(both, mask, back[:, 0], cell)

    def step(self, x: Tensor, state: AttentionState) -> tuple[Tensor, AttentionState]:
        h_att, _ = self.attend(state)
        if self.join is not None:
            both = torch.cat([x, h_att], -1)
            joined = self.join(both)
            h, cell = self.decoder.advance(joined, state.cell)
        else:
            # The sum of two maps of x and h_att: the columns of one map of [x ; h_att].
            of_input = self.decoder.project(x[:, None])[:, 0]
            projected = of_input + self.read(h_att)
            h, cell = self.decoder.step(projected, state.cell)
        return h, state._replace(h=h, cell=cell)

    def attend(self, state: AttentionState) -> tuple[Hidden, Float[Tensor, "B S"]]:
        """Return the attention output h_att and the weights p."""
        logits = torch.einsum("bh,bsh->bs", state.h, state.source)
        logits = logits.masked_fill(~state.mask, -torch.inf)
        p = logits.softmax(-1)
        read = torch.einsum("bs,bsh->bh", p, state.source)
        return read, p

    def attention_maps(
        self, tokens: Prefix, source: Source, source_lengths: Lengths
    ) -> Float[Tensor, "1 B 1 t S"]:
        """Return the attention weights p to the source tokens, with which s_{t+1} is predicted."""
        state = self.start(source, source_lengths)
        weights = []
        embedded = self.embedding(tokens)
        for x in embedded.unbind(1):
            # The weights before the step: they make the h_att that it reads.
            _, p = self.attend(state)
            weights.append(p)
            _, state = self.step(x, state)
        maps = torch.stack(weights, 1)
        return maps[None, :, None]
