"""Reference implementation of interpolated modified Kneser-Ney smoothing (Chen & Goodman 1998).

n-grams are tuples of tokens, counts are dictionaries.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from lmzoo.contract import START

Gram = tuple[int, ...]
USUAL = (0.5, 1.0, 1.5)
"""Discounts where the counts give none."""


class ReferenceKneserNey:
    def __init__(self, sentences: Sequence[Gram], order: int, vocab: int):
        self.order = order
        self.vocab = vocab
        self.counts: Counter[Gram] = Counter()
        predecessors: dict[Gram, set[int]] = defaultdict(set)
        for sentence in sentences:
            for end in range(2, len(sentence) + 1):
                for n in range(1, min(order, end) + 1):
                    first = end - n
                    gram = sentence[first:end]
                    self.counts[gram] += 1
                    if first:
                        predecessors[gram].add(sentence[first - 1])
        # Shorter n-grams count the different tokens before them; none is before `<start>`.
        for gram in self.counts:
            if len(gram) < order and gram[0] != START:
                self.counts[gram] = len(predecessors[gram])
        self.discounts = {n: self._discounts(n) for n in range(1, order + 1)}

    def _discounts(self, n: int) -> tuple[float, ...]:
        """Return the discounts of counts 1, 2 and 3 or more, from the counts of counts."""
        n1, n2, n3, n4 = (self._grams_with_count(n, count) for count in range(1, 5))
        if 0 in (n1, n2, n3):
            return USUAL
        y = n1 / (n1 + 2 * n2)
        one = 1 - 2 * y * n2 / n1
        two = 2 - 3 * y * n3 / n2
        more = 3 - 4 * y * n4 / n3
        if 0 < one <= 1 and 0 < two <= 2 and 0 < more <= 3:
            return one, two, more
        return USUAL

    def _grams_with_count(self, n: int, count: int) -> int:
        return sum(len(gram) == n and seen == count for gram, seen in self.counts.items())

    def probability(self, word: int, history: Gram) -> float:
        """P(word | history), the whole sentence so far."""
        first = max(0, len(history) - self.order + 1)
        return self._probability(word, history[first:])

    def _probability(self, word: int, context: Gram) -> float:
        below = 1 / self.vocab
        if context:
            below = self._probability(word, context[1:])
        after = {}
        for gram, count in self.counts.items():
            if gram[:-1] == context:
                after[gram[-1]] = count
        if not after:
            return below
        discounts = self.discounts[len(context) + 1]
        discounted = {}
        for token, count in after.items():
            discounted[token] = count - discounts[min(count, 3) - 1]
        total = sum(after.values())
        left = total - sum(discounted.values())
        return discounted.get(word, 0.0) / total + left / total * below
