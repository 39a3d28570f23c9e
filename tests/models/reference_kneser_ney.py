"""Reference implementation of interpolated modified Kneser-Ney smoothing (Chen & Goodman 1998).

n-grams are tuples of tokens, counts are dictionaries.
"""

from collections import Counter, defaultdict

from lmzoo.contract import START

USUAL = (0.5, 1.0, 1.5)
"""Discounts where the counts give none."""


class ReferenceKneserNey:
    def __init__(self, sentences, order, vocab):
        self.order = order
        self.vocab = vocab
        self.counts = Counter()
        predecessors = defaultdict(set)
        for sentence in sentences:
            self._count(sentence, predecessors)
        # Shorter n-grams count the different tokens before them; none is before `<start>`.
        for gram in self.counts:
            if len(gram) < order and gram[0] != START:
                self.counts[gram] = len(predecessors[gram])
        self.discounts = {}
        for n in range(1, order + 1):
            self.discounts[n] = self._discounts(n)

    def _count(self, sentence, predecessors):
        """Count every n-gram of a sentence, and what is before it."""
        for end in range(2, len(sentence) + 1):
            longest = min(self.order, end)
            # Longer n-grams first; the order of counts does not matter.
            for first in range(end - longest, end):
                gram = sentence[first:end]
                self.counts[gram] += 1
                if first:
                    before = sentence[first - 1]
                    predecessors[gram].add(before)

    def _discounts(self, n):
        """Return the discounts of counts 1, 2 and 3 or more, from the counts of counts."""
        by_count = [self._grams_with_count(n, count) for count in range(1, 5)]
        n1, n2, n3, n4 = by_count
        if 0 in (n1, n2, n3):
            return USUAL
        # The names are those of the paper.
        y = n1 / (n1 + 2 * n2)
        one = 1 - 2 * y * n2 / n1
        two = 2 - 3 * y * n3 / n2
        more = 3 - 4 * y * n4 / n3
        if 0 < one <= 1 and 0 < two <= 2 and 0 < more <= 3:
            return one, two, more
        return USUAL

    def _grams_with_count(self, n, count):
        found = 0
        for gram, seen in self.counts.items():
            if len(gram) == n and seen == count:
                found += 1
        return found

    def probability(self, word, history):
        """P(word | history), the whole sentence so far."""
        length = len(history)
        first = max(0, length - self.order + 1)
        return self._probability(word, history[first:])

    def _probability(self, word, context):
        below = 1 / self.vocab
        if context:
            shorter = context[1:]
            below = self._probability(word, shorter)
        # All words that were seen after this context.
        after = {}
        for gram, count in self.counts.items():
            if gram[:-1] == context:
                after[gram[-1]] = count
        if not after:
            return below
        discounts = self.discounts[len(context) + 1]
        discounted = {}
        for token, count in after.items():
            kind = min(count, 3) - 1
            discounted[token] = count - discounts[kind]
        total = sum(after.values())
        # What the discounts take is given to the shorter context.
        left = total - sum(discounted.values())
        seen = discounted.get(word, 0.0)
        return seen / total + left / total * below
