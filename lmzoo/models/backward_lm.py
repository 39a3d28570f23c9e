r"""Backward language model: reads and predicts the sequence from right to left.

    P(s_1 .. s_{n-1} | n) = Π_t P(s_t | s_{t+1} .. s_{n-1})                     without `<end>`
    P(s_1 .. s_{n-1})     = Π_t P(s_t | s_{t+1} .. s_{n-2}) · P(s_{n-1} | s_1 .. s_{n-2})   with it

n is the length of the sequence, `<start>` included. The `reader` is any causal model. It reads the
reversed sequence (`lmzoo.functional.sequence`) with pads last, and the scores are moved back to
the positions of their tokens. A prefix is therefore `<start>` and then the sequence from its end.

The first line is for corpora without `<end>`. In a corpus with `<end>` (`task.ends`) the last token
is read last, as in the second line. The probabilities of all sequences of all lengths then sum to
1, and the total score of a sequence is comparable with that of a left-to-right model.
"""

from typing import Annotated, Any, ClassVar

from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.contract import MODELS, DecodingState, LanguageModel, Task, model
from lmzoo.functional.sequence import reversed_positions


@model("backward_lm", family="technique", document="S4", source="S4")
class BackwardLM(LanguageModel):
    """Any causal model, applied from right to left."""

    causal: ClassVar[bool] = False
    """A token's score depends on the tokens after it, by design."""

    @config
    class Config:
        """The model that reads the reversed sequence."""

        reader: Annotated[Any, MODELS] = "recurrent_lm"

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        self.reader = MODELS.build(config.reader, task)
        if self.reader.closed_form or not self.reader.causal:
            raise UserError(
                f"reader {self.reader.name!r} cannot read backwards; "
                "use a causal model that is trained by gradients"
            )

    @property
    def leaks(self) -> str:
        return self.reader.leaks

    @property
    def state_size(self) -> int | None:
        return self.reader.state_size

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        count = tokens.shape[1]
        # `<end>` read first would say nothing about where the sequence stops.
        order = reversed_positions(lengths, count, keep_last=self.task.ends)
        backwards = tokens.gather(1, order)
        scores = self.reader.score_tokens(backwards, lengths)
        # Back to the positions of their tokens; the score of position t is number t − 1.
        index = order[:, 1:] - 1
        return scores.gather(1, index)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.reader.next_log_prob(prefix)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        return self.reader.begin(batch)

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        return self.reader.advance(state, token)
