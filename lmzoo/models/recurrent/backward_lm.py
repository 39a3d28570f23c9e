r"""A language model that reads and predicts from right to left.

    P(s_1 .. s_{n-1} | n) = Π_t P(s_t | s_{t+1} .. s_{n-1})

Any causal model can be the `reader`: it is given `<start>`, s_{n-1}, .., s_1, pads last,
and each score is put back where its token stands. The result is a density over all
sequences of a given length, not of a length too: where lengths vary and an end token
marks them, it is told what a left-to-right model must predict, so compare the two on
sequences of one length. A prefix is what has been read: `<start>`, then the sequence
from its end.

S4; zoo.md 4.4.
"""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from lmzoo.config import config
from lmzoo.contract import MODELS, LanguageModel, Task, model
from lmzoo.errors import UserError


@model("backward_lm", family="recurrent", seed="S4", source="S4")
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
        t = torch.arange(tokens.shape[1], device=tokens.device)
        # Its own inverse: 1..n-1 turned round, `<start>` and the pads left in place.
        turned = torch.where((t >= 1) & (t < lengths[:, None]), lengths[:, None] - t, t)
        scores = self.reader.score_tokens(tokens.gather(1, turned), lengths)
        return scores.gather(1, turned[:, 1:] - 1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.reader.next_log_prob(prefix)
