"""Models that continue a text from the state after its last block.

    block 1    <start> s_1 .. s_n          scores s_1 .. s_n
    block 2    s_n s_{n+1} .. s_{n+m}      scores s_{n+1} .. s_{n+m}, from the state after s_{n-1}

The scores of all blocks are those of the whole text in one pass. Gradients stop at the beginning of
a block: truncated backpropagation through time.

Williams & Peng 1990; Mikolov et al. 2010; Merity et al. 2018 (arXiv:1708.02182).
"""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lmzoo.types import Tokens


class CarriesState(ABC):
    """A language model with a state of constant size."""

    @property
    @abstractmethod
    def state_size(self) -> int | None:
        """Numbers in the state of a text; None if it grows, so that it is not carried."""

    @abstractmethod
    def score_block(self, tokens: Tokens, state: Any = None) -> tuple[Float[Tensor, "B T-1"], Any]:
        """Score a block of B texts.

        Args:
            tokens: The tokens of the block. The first is `<start>` in the first block of the texts,
                later the last token of the block before. It is not scored.
            state: None in the first block, later the state that the last call returned.

        Returns:
            log P(s_t | all tokens before) in nats, and the state after the block, detached.
        """


def carries_state(model: object) -> bool:
    """Return whether the model can start a block from the state after the block before."""
    return isinstance(model, CarriesState) and model.state_size is not None
