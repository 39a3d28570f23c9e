"""The smallest correct model."""

from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.contract import LanguageModel, Task
from lmzoo.functional.parameters import initialise


class Bigram(LanguageModel):
    """The smallest correct model: a row of logits for each previous token."""

    name = "bigram"

    @config
    class Config:
        size: int = 3

    def __init__(self, config, task: Task):
        super().__init__(config, task)
        self.table = nn.Embedding(task.vocab, task.vocab)

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.table(tokens[:, :-1])

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        dense = self.logits(tokens, lengths).log_softmax(-1)
        return self.chosen(dense, tokens)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        logits = self.table(prefix[:, -1])
        return logits.log_softmax(-1)

    def chosen(self, dense: Tensor, tokens: Tensor) -> Tensor:
        """Return the scores of the tokens after <start>."""
        scores = dense.gather(-1, tokens[:, 1:, None])
        return scores[..., 0]


def toy(cls: type[Bigram]) -> Bigram:
    """Return the toy model for 3 tokens, sequences of length 4 and sources of length 3."""
    task = Task(vocab=3, length=4, source_vocab=3, source_length=3)
    model = cls(cls.Config(), task)
    initialise(model, 0)
    return model
