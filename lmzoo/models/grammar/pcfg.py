r"""A probabilistic context-free grammar as a causal language model.

    S -> X or ε      P = softmax(root)            X in N or Q
    A -> B C         P = softmax_BC(rules_A)      A in N;  B, C in N or Q
    q -> v           P = softmax_v(emission_q)    v any id but `<end>`

    P(v | w_1..w_t)     = prefix(w_1..w_t v) / prefix(w_1..w_t)
    P(<end> | w_1..w_t) = inside(w_1..w_t)   / prefix(w_1..w_t)

so the scores of a sentence and its `<end>` sum to the log of its inside probability,
while every token's score depends on its past alone. A grammar that need not terminate
is scored exactly too: its endless strings are prefixes without an end. What follows an
`<end>` is not the grammar's business and is uniform.

Baker 1979; Jelinek & Lafferty 1991; S1.
"""

import math
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.contract import END, LanguageModel, Task, model
from lmzoo.errors import UserError
from lmzoo.functional.inside import Chart, from_first, inside
from lmzoo.functional.prefix import class_to_come, prefixes
from lmzoo.functional.semiring import LOG
from lmzoo.search_space import IntRange


class LogGrammar(NamedTuple):
    """A grammar's log-probabilities."""

    root: Tensor  # 1 + M: the empty sentence, then the symbols
    rules: Tensor  # A M M
    emission: Tensor  # Q V


@model("pcfg", family="grammar", document="S1", source="Baker 1979; Jelinek & Lafferty 1991")
class PCFG(LanguageModel):
    """A grammar in Chomsky normal form, scored token by token through prefix probabilities."""

    @config
    class Config:
        """How many symbols."""

        nonterminals: Annotated[int, IntRange(2, 64, log=True)] = Field(8, ge=1)
        preterminals: Annotated[int, IntRange(2, 64, log=True)] = Field(8, ge=1)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        if task.vocab <= END:
            raise UserError(f"pcfg ends sentences with <end> (id {END}), got vocab={task.vocab}")
        labels, classes = config.nonterminals, config.preterminals
        symbols = labels + classes
        self.root = nn.Parameter(torch.empty(1 + symbols))
        self.rules = nn.Parameter(torch.empty(labels, symbols, symbols))
        self.emission = nn.Parameter(torch.empty(classes, task.vocab))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """N(0, 1): symbols that start equal would stay equal."""
        for logits in (self.root, self.rules, self.emission):
            nn.init.normal_(logits)

    def grammar(self) -> LogGrammar:
        """The normalised grammar."""
        end = torch.arange(self.task.vocab, device=self.emission.device) == END
        return LogGrammar(
            root=torch.log_softmax(self.root, dim=-1),
            rules=torch.log_softmax(self.rules.flatten(1), dim=-1).view_as(self.rules),
            emission=torch.log_softmax(self.emission.masked_fill(end, -math.inf), dim=-1),
        )

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        targets, grammar = tokens[:, 1:], self.grammar()
        log_leaves = leaves(grammar, targets)
        chart = inside(log_leaves, grammar.rules, LOG)
        whole, begun = _sentences(chart, grammar), _beginnings(log_leaves, chart, grammar)
        ends = targets == END
        step = torch.where(ends, whole[:, :-1], begun[:, 1:]) - begun[:, :-1]
        over = ends.cumsum(1) - ends.long() > 0
        return torch.where(over, -math.log(self.task.vocab), step)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        words, grammar = prefix[:, 1:], self.grammar()
        log_leaves = leaves(grammar, words)
        chart = inside(log_leaves, grammar.rules, LOG)
        whole, begun = _sentences(chart, grammar), _beginnings(log_leaves, chart, grammar)
        # The next word enters through its class alone, so ask for each class once.
        classes = _at_root(class_to_come(grammar.rules, chart, log_leaves), grammar)
        end = torch.tensor([END], device=prefix.device)
        said = LOG.matmul(classes, grammar.emission.index_fill(1, end, 0.0))
        dense = said.index_copy(1, end, whole[:, -1:]) - begun[:, -1:]
        over = (words == END).any(1, keepdim=True)
        return torch.where(over, -math.log(self.task.vocab), dense)

    def sentence_log_prob(self, words: Int[Tensor, "B n"]) -> Float[Tensor, "B"]:
        """Log P(w_1..w_n <end>): the root's inside probability, all labels and trees summed."""
        grammar = self.grammar()
        chart = inside(leaves(grammar, words), grammar.rules, LOG)
        return _at_root(from_first(chart), grammar)[:, -1]


def leaves(grammar: LogGrammar, words: Int[Tensor, "B n"]) -> Float[Tensor, "B n Q"]:
    """Log P(w | q); `<end>` has some word's place, in spans that are never read."""
    return grammar.emission.T[words.masked_fill(words == END, 0)]


def _sentences(chart: Chart, grammar: LogGrammar) -> Float[Tensor, "B T"]:
    """Log P(w_1..w_t is the sentence), t = 0..n."""
    whole = _at_root(from_first(chart), grammar)
    return torch.cat([grammar.root[0].expand(len(whole), 1), whole], dim=1)


def _beginnings(
    log_leaves: Float[Tensor, "B n Q"], chart: Chart, grammar: LogGrammar
) -> Float[Tensor, "B T"]:
    """Log P(the sentence begins with w_1..w_t), t = 0..n."""
    begun = _at_root(from_first(prefixes(log_leaves, grammar.rules, chart)), grammar)
    return nn.functional.pad(begun, (1, 0))


def _at_root(spans: Float[Tensor, "B n M"], grammar: LogGrammar) -> Float[Tensor, "B n"]:
    return torch.logsumexp(spans + grammar.root[1:], dim=-1)
