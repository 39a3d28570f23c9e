"""Reference implementation of interpolated modified Kneser-Ney smoothing (Chen & Goodman 1998).

n-grams are tuples of tokens, counts are dictionaries.
"""

from collections import defaultdict
from collections.abc import Sequence

from lmzoo.contract import START

Gram = tuple[int, ...]


class ReferenceKneserNey:
    def __init__(self, sentences: Sequence[Gram], order: int, vocab: int) -> None:
        self.order = order
        self.vocab = vocab
        raw: dict[Gram, int] = defaultdict(int)
        predecessors: dict[Gram, set[int]] = defaultdict(set)
        for s in sentences:
            for t in range(1, len(s)):
                for n in range(1, order + 1):
                    if t - n + 1 < 0:
                        continue
                    gram = s[t - n + 1 : t + 1]
                    raw[gram] += 1
                    if t - n >= 0:
                        predecessors[gram].add(s[t - n])
        self.counts = {
            g: c if len(g) == order or g[0] == START else len(predecessors[g])
            for g, c in raw.items()
        }
        self.discounts = {n: self._discounts(n) for n in range(1, order + 1)}

    def _discounts(self, n: int) -> tuple[float, float, float]:
        of = [sum(len(g) == n and c == i for g, c in self.counts.items()) for i in range(5)]
        if of[1] == 0 or of[2] == 0 or of[3] == 0:
            return 0.5, 1.0, 1.5
        y = of[1] / (of[1] + 2 * of[2])
        d = 1 - 2 * y * of[2] / of[1], 2 - 3 * y * of[3] / of[2], 3 - 4 * y * of[4] / of[3]
        if not all(0 < d[i] <= i + 1 for i in range(3)):
            return 0.5, 1.0, 1.5
        return d

    def probability(self, word: int, history: Gram) -> float:
        """P(word | history), the whole sentence so far."""
        return self._probability(word, history[max(0, len(history) - self.order + 1) :])

    def _probability(self, word: int, context: Gram) -> float:
        if context:
            below = self._probability(word, context[1:])
        else:
            below = 1 / self.vocab
        n = len(context) + 1
        after = {g[-1]: c for g, c in self.counts.items() if len(g) == n and g[:-1] == context}
        if not after:
            return below
        d = self.discounts[n]
        total = sum(after.values())
        off = sum(d[min(c, 3) - 1] for c in after.values())
        own = 0.0
        if word in after:
            own = after[word] - d[min(after[word], 3) - 1]
        return own / total + off / total * below
