r"""A language model that reads and predicts from right to left.

    P(s_1 .. s_{n-1} | n) = Π_t P(s_t | s_{t+1} .. s_{n-1})
    P(s_1 .. s_{n-1})     = Π_t P(s_t | s_{t+1} .. s_{n-2}) · P(s_{n-1} | s_1 .. s_{n-2})

Any causal model can be the `reader`: it is given the sequence turned round (see
`functional/turning.py`), pads last, and each score is put back where its token stands. The
first line is for a corpus whose sequences do not tell their end, where no model pays for it.
The second is for one with `<end>` (`task.ends`): the last token is read last, so that a stop
is paid for once, the probabilities of all sequences of all lengths sum to one, and the score
is one of the same strings as a left-to-right model's. A prefix is what has been read:
`<start>`, then the sequence from its end.

S4; zoo.md 4.4.
"""

from typing import Annotated, Any, ClassVar

from torch import Tensor

from lmzoo.config import config
from lmzoo.contract import MODELS, Carried, LanguageModel, Task, model
from lmzoo.errors import UserError
from lmzoo.functional.reversal import reversed_positions


@model("backward_lm", family="technique", document="S4", source="S4")
class BackwardLM(LanguageModel):
    """Any causal model, scored from right to left."""

    causal: ClassVar[bool] = False
    """A token's score depends on what follows it, by design."""

    @config
    class Config:
        """What reads."""

        reader: Annotated[Any, MODELS] = "recurrent_lm"

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.reader = MODELS.build(config.reader, task)
        if self.reader.closed_form or not self.reader.causal:
            raise UserError(
                f"reader {self.reader.name!r} cannot be read backwards; "
                "use a causal model that is trained by gradients"
            )

    @property
    def leaks(self) -> str:
        return self.reader.leaks

    @property
    def state_size(self) -> int | None:
        return self.reader.state_size

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        order = reversed_positions(lengths, tokens.shape[1], ends=self.task.ends)
        scores = self.reader.score_tokens(tokens.gather(1, order), lengths)
        return scores.gather(1, order[:, 1:] - 1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.reader.next_log_prob(prefix)

    def begin(self, batch: int, *given: Tensor) -> Carried:
        return self.reader.begin(batch)

    def advance(self, carried: Carried, token: Tensor) -> tuple[Tensor, Carried]:
        return self.reader.advance(carried, token)
