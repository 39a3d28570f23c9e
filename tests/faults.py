"""An honest toy model, and one spoilt copy of it for each fault a law is there to catch."""

from typing import Any

import torch
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.contract import LanguageModel, Task, initialise


class Bigram(LanguageModel):
    """The smallest honest model: a row of logits for each previous token."""

    name = "bigram"

    @config
    class Config:
        size: int = 3

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.table = nn.Embedding(task.vocab, task.vocab)

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.table(tokens[:, :-1])

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.chosen(self.logits(tokens, lengths).log_softmax(-1), tokens)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.table(prefix[:, -1]).log_softmax(-1)

    def chosen(self, dense: Tensor, tokens: Tensor) -> Tensor:
        return dense.gather(-1, tokens[:, 1:, None])[..., 0]


class SeesItself(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.table(tokens[:, 1:])


class SeesTheFuture(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.table(tokens[:, :-1]) + self.table(tokens.roll(-1, 1)[:, 1:])


class SeesTheFutureInTraining(SeesTheFuture):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        read = SeesTheFuture if self.training else Bigram
        return read.logits(self, tokens, lengths)


class ForgetsTheSoftmax(Bigram):
    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.chosen(self.logits(tokens, lengths), tokens)


class DecodesWithoutSoftmax(Bigram):
    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.table(prefix[:, -1])


class DecodesFromTheBatch(Bigram):
    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return (
            self.table(prefix[:, -1]).mean(0, keepdim=True).log_softmax(-1).expand(len(prefix), -1)
        )


class DecodesAnotherToken(Bigram):
    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.table(prefix[:, 0]).log_softmax(-1)


class ForgetsWhereItStands(Bigram):
    def begin(self, batch: int, *given: Tensor) -> Any:
        return ()

    def advance(self, carried: Any, token: Tensor) -> tuple[Tensor, Any]:
        return self.next_log_prob(torch.ones_like(token)[:, None]), carried


class CountsItsSteps(Bigram):
    def begin(self, batch: int, *given: Tensor) -> Any:
        return [0]

    def advance(self, carried: Any, token: Tensor) -> tuple[Tensor, Any]:
        carried[0] += 1
        return (self.table(token) / carried[0]).log_softmax(-1), carried


class StaysWithTheRow(Bigram):
    """Reads one token late, and keeps it where no beam can pick it."""

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.table(prefix[:, max(prefix.shape[1] - 2, 0)]).log_softmax(-1)

    def begin(self, batch: int, *given: Tensor) -> Any:
        return None

    def advance(self, carried: Any, token: Tensor) -> tuple[Tensor, Any]:
        last = token.tolist() if carried is None else carried
        return self.table(torch.tensor(last)).log_softmax(-1), tuple(token.tolist())


class Draws(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        logits = super().logits(tokens, lengths)
        return logits + torch.randn_like(logits)


class Transposes(Bigram):
    def log_prob(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return super().log_prob(tokens, lengths).T


class ScoresPads(Bigram):
    def log_prob(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return nn.functional.pad(self.score_tokens(tokens, lengths), (1, 0))


class ReadsPads(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        padded = (lengths < tokens.shape[1])[:, None, None]
        return super().logits(tokens, lengths) + self.table(tokens[:, -1:]) * padded


class CountsPads(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return super().logits(tokens, lengths) * tokens.shape[1]


class AveragesTheBatch(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        logits = super().logits(tokens, lengths)
        return logits + logits.mean((0, 1))


class AveragesTheBatchInTraining(AveragesTheBatch):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        read = AveragesTheBatch if self.training else Bigram
        return read.logits(self, tokens, lengths)


class MovesWithTheRow(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return super().logits(tokens, lengths) * torch.arange(len(tokens))[:, None, None]


class MisjudgesItsLatent(Bigram):
    latent = "component"

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return tokens.new_ones(len(tokens), 2, tokens.shape[1] - 1, dtype=torch.float32)


class HasADeadLayer(Bigram):
    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.head = nn.Linear(task.vocab, task.vocab)


class HasABiasThatCancels(HasADeadLayer):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return super().logits(tokens, lengths) + self.head.bias.sum() + self.head.weight.sum(0)


class LearnsBackwards(Bigram):
    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        logits = super().logits(tokens, lengths)
        return 2 * logits.detach() - logits


class HeatsUpAsItGoes(Bigram):
    calls = 0

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return super().logits(tokens, lengths) * (1 + self.calls)


class KeepsAStateAside(Bigram):
    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.aside = torch.randn(task.vocab)

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return super().logits(tokens, lengths) + self.aside


class OwnsAnUndrawnWeight(Bigram):
    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.bias = nn.Parameter(torch.zeros(task.vocab))


class DrawsFromTheClock(Bigram):
    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.table.reset_parameters = lambda: (torch.seed(), nn.init.normal_(self.table.weight))


class StartsAlwaysTheSame(Bigram):
    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.table.reset_parameters = lambda: nn.init.eye_(self.table.weight)


class AcceptsNonsense(Bigram):
    @config
    class Config:
        size: Any = 3


class CountsUpWhenRead(Bigram):
    @config
    class Config:
        size: int = 3

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", self.size + 1)


def toy(cls: type[Bigram]) -> Bigram:
    """The toy, three tokens wide and four long."""
    model = cls(cls.Config(), Task(vocab=3, length=4))
    initialise(model, 0)
    return model


class KeepsAConstantBehind(Bigram):
    """A tensor that is neither weight nor buffer stays where it was made."""

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.shift = torch.zeros(task.vocab)

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return super().logits(tokens, lengths) + self.shift
