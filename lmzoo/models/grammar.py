"""Probabilistic context-free grammars: the model, and an estimate by tree shapes."""

import math
from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import IntRange
from lmzoo.contract import END, LanguageModel, Task, model
from lmzoo.functional.inside import (
    Chart,
    initial_spans,
    inside,
    log_bilinear,
    next_class_log_prob,
    pad,
    prefix_chart,
)
from lmzoo.types import TokenScores

Words = Int[Tensor, "B n"]
"""Sentences of one length, without `<start>`."""


Symbols = Annotated[int, IntRange(2, 64, log=True), Field(ge=1)]


class LogGrammar(NamedTuple):
    """Log-probabilities of a grammar."""

    root: Tensor
    """(1 + M): the empty sentence, then the symbols."""
    rules: Tensor
    """(|N|, M, M)."""
    emission: Tensor
    """(|Q|, V)."""


@model(
    "pcfg",
    family="grammar",
    document="S1",
    source="Baker 1979; Jelinek & Lafferty 1991",
)
class PCFG(LanguageModel):
    """PCFG in Chomsky normal form, scored token by token with prefix probabilities.

        S -> X or ε      P = softmax(root)            X in N or Q
        A -> B C         P = softmax_BC(rules_A)      A in N;  B, C in N or Q
        q -> v           P = softmax_v(emission_q)    v any id but `<end>`

        P(v | w_1..w_t)     = prefix(w_1..w_t v) / prefix(w_1..w_t)
        P(<end> | w_1..w_t) = inside(w_1..w_t)   / prefix(w_1..w_t)

    N are nonterminals (A), Q preterminals (q); M = |N| + |Q|. root is (1 + M), rules is (|N|, M,
    M), emission is (|Q|, V). inside(w) is the probability that the grammar generates exactly w,
    prefix(w) the probability that it generates a string that begins with w. The scores of a
    sentence and its `<end>` sum to log inside(w), while each score depends on earlier tokens only.
    Infinite derivations are allowed: their strings count as prefixes without an end. Tokens after
    `<end>` are uniform.
    """

    @config
    class Config:
        """Numbers of symbols."""

        nonterminals: Symbols = 8
        preterminals: Symbols = 8

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        if task.vocab <= END:
            raise UserError(
                f"pcfg needs <end> (id {END}) in the vocabulary, got vocab={task.vocab}"
            )
        labels = config.nonterminals
        classes = config.preterminals
        symbols = labels + classes
        self.root = nn.Parameter(torch.empty(1 + symbols))
        self.rules = nn.Parameter(torch.empty(labels, symbols, symbols))
        self.emission = nn.Parameter(torch.empty(classes, task.vocab))
        self.reset_parameters()

    def reset_parameters(self):
        """Draw all logits from N(0, 1): equal symbols would stay equal."""
        for logits in (self.root, self.rules, self.emission):
            nn.init.normal_(logits)

    @property
    def unused(self) -> int:
        """Logits that no score depends on: those of `<end>`, which no preterminal emits."""
        return len(self.emission)

    def grammar(self) -> LogGrammar:
        """Return the normalised grammar."""
        device = self.emission.device
        ids = torch.arange(self.task.vocab, device=device)
        # No preterminal emits `<end>`: a sentence ends when its tree is complete.
        emission = self.emission.masked_fill(ids == END, -math.inf)
        rules = self.rules.flatten(1).log_softmax(-1)
        return LogGrammar(
            root=self.root.log_softmax(-1),
            rules=rules.view_as(self.rules),
            emission=emission.log_softmax(-1),
        )

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        targets = tokens[:, 1:]
        grammar = self.grammar()
        log_leaves = leaf_scores(grammar, targets)
        chart = inside(log_leaves, grammar.rules)
        sentences = _sentence_scores(chart, grammar)
        prefixes = _prefix_scores(log_leaves, chart, grammar)
        ends = targets == END
        complete = sentences[:, :-1]
        with_token = torch.where(ends, complete, prefixes[:, 1:])
        scores = with_token - prefixes[:, :-1]
        # Nothing follows `<end>`; the tokens after it are uniform, so that scores stay a density.
        earlier_ends = ends.cumsum(1) - ends.long()
        return torch.where(earlier_ends > 0, -math.log(self.task.vocab), scores)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        words = prefix[:, 1:]
        grammar = self.grammar()
        log_leaves = leaf_scores(grammar, words)
        chart = inside(log_leaves, grammar.rules)
        sentences = _sentence_scores(chart, grammar)
        prefixes = _prefix_scores(log_leaves, chart, grammar)
        # P(prefix + v) depends on v through its preterminal only: compute it per preterminal.
        by_class = next_class_log_prob(grammar.rules, chart, log_leaves)
        classes = _root_scores(by_class, grammar)
        end = torch.tensor([END], device=prefix.device)
        emission = grammar.emission.index_fill(1, end, 0.0)
        joint = classes[..., None] + emission
        words_next = joint.logsumexp(-2)
        # The place of `<end>` takes the probability that the sentence is complete.
        dense = words_next.index_copy(1, end, sentences[:, -1:])
        dense = dense - prefixes[:, -1:]
        ends = words == END
        after_end = ends.any(1, keepdim=True)
        return torch.where(after_end, -math.log(self.task.vocab), dense)

    def sentence_log_prob(self, words: Words) -> Float[Tensor, "B"]:
        """Return log inside(w) of complete sentences: the sum over all labelled trees."""
        grammar = self.grammar()
        leaves = leaf_scores(grammar, words)
        chart = inside(leaves, grammar.rules)
        scores = _root_scores(initial_spans(chart), grammar)
        return scores[:, -1]


def leaf_scores(grammar: LogGrammar, words: Words) -> Float[Tensor, "B n Q"]:
    """Return log P(w | q). Values at `<end>` are arbitrary: no span that contains it is used."""
    ends = words == END
    known = words.masked_fill(ends, 0)
    return grammar.emission.T[known]


def _sentence_scores(chart: Chart, grammar: LogGrammar) -> TokenScores:
    scores = _root_scores(initial_spans(chart), grammar)
    batch = len(scores)
    empty = grammar.root[0].expand(batch, 1)
    return torch.cat([empty, scores], 1)


def _prefix_scores(
    log_leaves: Float[Tensor, "B n Q"],
    chart: Chart,
    grammar: LogGrammar,
) -> TokenScores:
    chart = prefix_chart(log_leaves, grammar.rules, chart)
    scores = _root_scores(initial_spans(chart), grammar)
    # Every string begins with the empty prefix: log 1.
    return nn.functional.pad(scores, (1, 0))


def _root_scores(
    spans: Float[Tensor, "B *n M"],
    grammar: LogGrammar,
) -> Float[Tensor, "B *n"]:
    joint = spans + grammar.root[1:]
    return joint.logsumexp(-1)


Bracketing = int | tuple[Any, Any]
"""A binary tree over word positions: a position, or a pair of trees."""


def estimate_log_prob(
    words: Words,
    grammar: LogGrammar,
    samples: int,
    generator: torch.Generator,
) -> Float[Tensor, "B"]:
    """Return an estimate of log P(w) from sampled tree shapes.

        P(w) = Σ_b P(w, b)             b: one of Catalan(n-1) binary bracketings
        P̂(w) = Catalan(n-1) · mean_s P(w, b_s),   b_s uniform

    n is the number of words. P(w, b) sums over all labels of the tree b, so the estimate is
    unbiased and only the tree shape is sampled. It converges to the result of the inside algorithm.

    Source: S1.
    """
    n = words.shape[1]
    drawn = [draw_bracketing(0, n, generator) for _ in range(samples)]
    scores = torch.stack([bracketing_log_prob(tree, words, grammar) for tree in drawn])
    log_sum = scores.logsumexp(0)
    trees = catalan(n - 1)
    # The mean over the samples, times the number of trees.
    return log_sum + math.log(trees) - math.log(samples)


def catalan(n: int) -> int:
    """Return the number of binary trees with n + 1 leaves."""
    halves = math.comb(2 * n, n)
    return halves // (n + 1)


def draw_bracketing(first: int, stop: int, generator: torch.Generator) -> Bracketing:
    """Draw one of all bracketings of the words first..stop-1 uniformly."""
    words = stop - first
    if words == 1:
        return first
    # The share of a split is the number of bracketings of both parts.
    shares = [float(catalan(left - 1) * catalan(words - left - 1)) for left in range(1, words)]
    weights = torch.tensor(shares)
    drawn = torch.multinomial(weights, 1, generator=generator)
    k = first + 1 + int(drawn)
    left = draw_bracketing(first, k, generator)
    right = draw_bracketing(k, stop, generator)
    return left, right


def bracketing_log_prob(
    bracketing: Bracketing,
    words: Words,
    grammar: LogGrammar,
) -> Float[Tensor, "B"]:
    """Return log P(w, b), summed over all labels."""
    leaves = leaf_scores(grammar, words)
    scores = _label_scores(bracketing, leaves, grammar)
    return _root_scores(scores, grammar)


def _label_scores(
    bracketing: Bracketing,
    log_leaves: Float[Tensor, "B n Q"],
    grammar: LogGrammar,
) -> Float[Tensor, "B M"]:
    """Return log P(words and inner brackets of the tree | label) for every label of its root."""
    labels = len(grammar.rules)
    classes = log_leaves.shape[2]
    # Symbols are nonterminals, then preterminals: a word has the latter, a pair the former.
    if isinstance(bracketing, int):
        leaf = log_leaves[:, bracketing]
        return pad(leaf, (labels, 0))
    # `log_bilinear` sums over splits: here there is one.
    left, right = [_label_scores(part, log_leaves, grammar)[:, None] for part in bracketing]
    joined = log_bilinear(left, right, grammar.rules)
    return pad(joined, (0, classes))
