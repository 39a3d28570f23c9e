r"""A loss that no causal density can have: below the entropy of the source.

    loss < H − 3 ln V / (2 √N)

H is the entropy in nats per token, known for some corpora, V the size of the vocabulary and N the
number of test sequences. The expected loss of a density is at least H. That of a test split of N
independent sequences is at least the split's own −log P under the source, whose mean varies: a
number in [0, ln V], such as the −log P per token of a sequence under a source that is not extreme,
has a standard deviation of at most ln V / 2. So a loss that is lower is not a draw of the test
split: the model sees what it predicts, or its probabilities do not sum to one. A leak that is worth
less than this is not found here; `lmzoo audit` looks for it in the model.
"""

from math import log, sqrt

STANDARD_ERRORS = 3.0


def is_impossible(
    loss: float | None, floor: float | None, vocab: int | None, sequences: int | None
) -> bool:
    """Return whether a test loss in nats per token is impossible; False if the floor is unknown."""
    if loss is None or floor is None or not vocab or not sequences:
        return False
    return loss < floor - STANDARD_ERRORS * log(vocab) / (2 * sqrt(sequences))
