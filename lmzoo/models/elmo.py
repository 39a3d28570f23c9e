r"""ELMo: a forward and a backward language model whose states represent tokens in context.

    h→^l_t = cell(h→^{l-1}_t, h→^l_{t-1})      reads <start>, s_1, .., s_t        h→^0 = e→(s)
    h←^l_t = cell(h←^{l-1}_t, h←^l_{t+1})      reads <start>, s_m, .., s_t        h←^0 = e←(s)
    P(s_t | s_<t) = softmax_v( Emb→ h→^L_{t-1} )         the score
    P(s_t | s_>t) = softmax_v( Emb← h←^L_{t+1} )         trained too, reported separately

    represent(t) = h→^L_t ⊕ h←^L_t ⊕ e→(s_t)                              E + 2H numbers

h^l_t and e(s) are (E), H = E, Emb is (V, E); layers are l = 1..L. m is n−1, where n is the length
of the sequence. In a corpus with `<end>`, m is n−2 and the backward model predicts the last token
last (`lmzoo.functional.sequence`); the h← of that token has read `<start>` only.

The directions share no parameters and training maximises the sum of their log-likelihoods, so each
is trained as if alone, except that recipe.clip clips their joint gradient. Checkpoints keep the
weights of the forward model's best epoch; the report of the backward model is for that epoch too.
h←_t has read s_t and all later tokens, so it is never used to predict the next token.

Differences from the paper: there the directions share the token vectors and the softmax, and token
vectors come from the characters of a word.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.blocks.layers import EmbeddingConfig, EmbeddingTable
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS, CellChoice, Depth
from lmzoo.contract import DecodingState, LanguageModel, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.functional.sequence import reversed_positions
from lmzoo.functional.token_scores import mask_scores, scored_mask
from lmzoo.types import Lengths, NextScores, Prefix, SequenceVectors, Tokens, TokenScores


@config
class ElmoConfig(EmbeddingConfig):
    """Embedding, cell and depth of both directions."""

    cell: CellChoice = "lstm"
    num_layers: Depth = 2
    """Number L of stacked cells."""


class DirectionalLM(nn.Module):
    """A recurrent language model in one direction that returns the outputs of all layers."""

    def __init__(self, config: ElmoConfig, task: Task):
        super().__init__()
        width = config.width
        self.embedding = EmbeddingTable(task.vocab, width, config.embedding_std)
        # Lowest first.
        self.cells: Any = nn.ModuleList()
        for _ in range(config.num_layers):
            cell = CELLS.build(config.cell, width, task.length)
            self.cells.append(cell)
        emission = EMISSIONS.parse("vector")
        self.emission = EMISSIONS.build(emission, width, Norm.NONE)

    def layer_outputs(self, tokens: Prefix) -> Float[Tensor, "L1 B t E"]:
        """Return h^0 .. h^L after each token."""
        x = self.embedding(tokens)
        h = [x]
        for cell in self.cells:
            # Models start from ones (`Cell.zero_start`).
            start = x.new_ones(len(tokens), cell.start_size)
            h.append(cell.scan(h[-1], start))
        return torch.stack(h)

    def scores(self, tokens: Tokens) -> Float[Tensor, "B T-1"]:
        """Return log P(s_t | tokens read before it)."""
        y = self.layer_outputs(tokens[:, :-1])[-1]
        targets = tokens[:, 1:]
        return self.emission.log_prob(y, targets, self.embedding.weight)

    def next_log_prob(self, y: SequenceVectors) -> NextScores:
        """Return log P(v | tokens read) of all tokens v, from the output of the top layer."""
        return self.emission.dense(y, self.embedding.weight)


@model(
    "elmo",
    family="embedding",
    document="S3",
    source="Peters et al. 2018 (arXiv:1802.05365)",
)
class Elmo(LanguageModel):
    """Forward and backward recurrent language models for contextual token vectors."""

    Config = ElmoConfig

    def __init__(self, config: ElmoConfig, task: Task):
        super().__init__(config, task)
        self.forward_lm = DirectionalLM(config, task)
        self.backward_lm = DirectionalLM(config, task)

    @property
    def state_size(self) -> int | None:
        # Only the forward model is used in decoding.
        lowest = self.forward_lm.cells[0]
        cell_size = lowest.state_size
        if cell_size is None:
            return None
        return cell_size * self.config.num_layers

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        # Only the forward direction is a density of the sequence: h← has read the later tokens.
        return self.forward_lm.scores(tokens)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        outputs = self.forward_lm.layer_outputs(prefix)
        y = outputs[-1, :, -1]
        return self.forward_lm.next_log_prob(y)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        cells = list(self.forward_lm.cells)
        weight = self.forward_lm.embedding.weight
        size = sum(cell.start_size for cell in cells)
        start = weight.new_ones(batch, 1, size)
        return stack.begin(cells, start)

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        model = self.forward_lm
        x = model.embedding(token)
        y, state = stack.advance(list(model.cells), x, state)
        scores = model.next_log_prob(y[:, 0])
        return scores, state

    def objective(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        backward = self.backward_log_prob(tokens, lengths)
        # Both directions learn; only the left-to-right one is a language model.
        return self.log_prob(tokens, lengths) + backward

    def backward_log_prob(self, tokens: Tokens, lengths: Lengths) -> TokenScores:
        """Return log P(s_t | s_>t) of the backward model; for `<end>`, log P(s_t | s_<t)."""
        order = self._reversed_positions(tokens, lengths)
        backwards = tokens.gather(1, order)
        scores = self.backward_lm.scores(backwards)
        # The score of position t stands at t − 1 of the scores: those of `<start>` are left out.
        index = order[:, 1:] - 1
        return mask_scores(scores.gather(1, index), lengths)

    def report(
        self,
        tokens: Tokens,
        lengths: Lengths,
        *sources: Tensor,
    ) -> dict[str, float]:
        """Return the negative log-likelihood of each direction, in nats per token."""
        count = scored_mask(tokens, lengths).sum()
        forward = self.log_prob(tokens, lengths).sum()
        backward = self.backward_log_prob(tokens, lengths).sum()
        forward_mean = forward / count
        backward_mean = backward / count
        return {
            "left to right": -forward_mean.item(),
            "right to left": -backward_mean.item(),
        }

    def represent(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B T R"]:
        """Return a vector for each token in its context, R = E + 2H; undefined at pads."""
        order = self._reversed_positions(tokens, lengths)
        forward = self.forward_lm.layer_outputs(tokens)
        backwards = tokens.gather(1, order)
        backward = self.backward_lm.layer_outputs(backwards)
        if self.task.ends:  # no token follows the last one: use the state after `<start>`
            t = torch.arange(tokens.shape[1], device=tokens.device)
            last = t == lengths[:, None] - 1
            order = order.masked_fill(last, 0)
        index = order[None, ..., None]
        backward = backward.gather(2, index.expand_as(backward))
        parts = [forward[-1], backward[-1], forward[0]]
        return torch.cat(parts, -1)

    def _reversed_positions(self, tokens: Tokens, lengths: Lengths) -> Tokens:
        count = tokens.shape[1]
        return reversed_positions(lengths, count, keep_last=self.task.ends)
