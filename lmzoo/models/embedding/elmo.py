r"""ELMo: two language models, one from each side, whose states say what a word means here.

    h→^l_t = cell(h→^{l-1}_t, h→^l_{t-1})      reads <start>, s_1, .., s_t        h→^0 = e→(s)
    h←^l_t = cell(h←^{l-1}_t, h←^l_{t+1})      reads <start>, s_m, .., s_t        h←^0 = e←(s)
    P(s_t | s_<t) = softmax_v( Emb→ h→^L_{t-1} )         what is scored
    P(s_t | s_>t) = softmax_v( Emb← h←^L_{t+1} )         trained beside it, reported apart

    represent(t) = h→^L_t ⊕ h←^L_t ⊕ e→(s_t)                              E + 2H numbers
                 | γ Σ_l softmax(a)_l [h→^l_t ; h←^l_t]                   with a LayerMix

m is n−1; where sequences end in `<end>` it is n−2, and the last token is foretold last, as from
left to right (`functional/turning.py`): its own h← has read `<start>` alone.

The two share no parameter and what is raised is the sum of their log-likelihoods: each is
trained as if alone (but for a clip of the joint gradient, `recipe.clip=none` to be exact).
What is kept are the weights of the forward model's best epoch: the backward model's report
is of that epoch, not of its own best. A state h←_t has read s_t and all that follows, so it
never meets a next-token head.

Peters et al. 2018 (arXiv:1802.05365); S3; zoo.md 4.3.
"""

from typing import Annotated, Any, cast

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS, Cell
from lmzoo.config import config
from lmzoo.contract import Carried, LanguageModel, Task, mask_unscored, model, scored_mask
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.functional.reversal import reversed_positions
from lmzoo.search_space import IntRange
from lmzoo.types import Lengths, Tokens, TokenScores


@config
class ElmoConfig:
    """What both directions are made of."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    """E = H."""
    cell: Annotated[Any, CELLS] = "lstm"
    num_layers: Annotated[int, IntRange(1, 4)] = Field(2, ge=1)
    embedding_std: float | None = Field(None, gt=0)


class Direction(nn.Module):
    """A recurrent language model in one direction, its layers in the open."""

    def __init__(self, config: ElmoConfig, task: Task) -> None:
        super().__init__()
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.cells = nn.ModuleList(
            CELLS.build(config.cell, config.width, task.length) for _ in range(config.num_layers)
        )
        self.emission = EMISSIONS.build(EMISSIONS.read("vector"), config.width, Norm.NONE)

    def layers(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "L1 B t E"]:
        """h^0 .. h^L after each token."""
        h = [self.embedding(tokens)]
        for cell in self.stacked:
            h.append(cell.scan(h[-1], h[0].new_ones(len(tokens), cell.parts * cell.width)))
        return torch.stack(h)

    @property
    def stacked(self) -> list[Cell]:
        """The layers' cells, lowest first."""
        return [cast("Cell", cell) for cell in self.cells]

    def scores(self, tokens: Tokens) -> Float[Tensor, "B T-1"]:
        """Log P(s_t | what was read before it)."""
        y = self.layers(tokens[:, :-1])[-1]
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight)

    def next(self, y: Float[Tensor, "B E"]) -> Float[Tensor, "B V"]:
        """Log P(v | what was read), from the uppermost state."""
        return self.emission.dense(y, self.embedding.weight)


class LayerMix(nn.Module):
    """γ Σ_l softmax(a)_l h^l: belongs to the task that uses the vectors, not to their model."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.empty(layers))
        self.scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The plain mean."""
        nn.init.zeros_(self.logits)
        nn.init.ones_(self.scale)

    def forward(self, layers: Float[Tensor, "L1 *N"]) -> Float[Tensor, "*N"]:
        return self.scale * torch.tensordot(self.logits.softmax(0), layers, dims=1)


@model("elmo", family="embedding", document="S3", source="Peters et al. 2018 (arXiv:1802.05365)")
class Elmo(LanguageModel):
    """Forward and backward language models whose states represent words in context."""

    Config = ElmoConfig

    def __init__(self, config: ElmoConfig, task: Task) -> None:
        super().__init__(config, task)
        self.forward_lm, self.backward_lm = Direction(config, task), Direction(config, task)

    @property
    def state_size(self) -> int | None:
        # What the forward model carries; whether a cell's state grows, all layers share.
        one = self.forward_lm.stacked[0].state_size
        return None if one is None else one * self.config.num_layers

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.forward_lm.scores(tokens)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.forward_lm.next(self.forward_lm.layers(prefix)[-1, :, -1])

    def begin(self, batch: int, *given: Tensor) -> Carried:
        cells = self.forward_lm.stacked
        size = sum(cell.parts * cell.width for cell in cells)
        return stack.begin(cells, self.forward_lm.embedding.weight.new_ones(batch, 1, size))

    def advance(self, carried: Carried, token: Tensor) -> tuple[Tensor, Carried]:
        x = self.forward_lm.embedding(token)
        y, carried = stack.advance(self.forward_lm.stacked, x, carried)
        return self.forward_lm.next(y[:, 0]), carried

    def objective(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> TokenScores:
        return self.log_prob(tokens, lengths) + self.backward_log_prob(tokens, lengths)

    def backward_log_prob(self, tokens: Tokens, lengths: Lengths) -> TokenScores:
        """Log P(s_t | s_>t), of the backward model; of an `<end>` given all before it."""
        order = self._order(tokens, lengths)
        scores = self.backward_lm.scores(tokens.gather(1, order))
        return mask_unscored(tokens, lengths, scores.gather(1, order[:, 1:] - 1))

    def report(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> dict[str, float]:
        """Nats per token of each direction: one's log-perplexity says nothing of the other's."""
        count = scored_mask(tokens, lengths).sum()
        both = self.log_prob(tokens, lengths), self.backward_log_prob(tokens, lengths)
        forward, backward = (-(scores.sum() / count).item() for scores in both)
        return {"left to right": forward, "right to left": backward}

    def represent(
        self, tokens: Tokens, lengths: Lengths, mix: LayerMix | None = None
    ) -> Float[Tensor, "B T R"]:
        """A vector for each token in its context; at position 0 no word has been read yet.

        R is E + 2H, or 2H with a `mix` over the layers. At pads they mean nothing.
        """
        order = self._order(tokens, lengths)
        rightward = self.forward_lm.layers(tokens)
        leftward = self.backward_lm.layers(tokens.gather(1, order))
        if self.task.ends:  # nothing stands to the right of the last token
            t = torch.arange(tokens.shape[1], device=tokens.device)
            order = order.masked_fill(t == lengths[:, None] - 1, 0)
        leftward = leftward.gather(2, order[None, ..., None].expand_as(leftward))
        if mix is not None:
            return mix(torch.cat([rightward, leftward], dim=-1))
        return torch.cat([rightward[-1], leftward[-1], rightward[0]], dim=-1)

    def _order(self, tokens: Tokens, lengths: Lengths) -> Int[Tensor, "B T"]:
        return reversed_positions(lengths, tokens.shape[1], ends=self.task.ends)
