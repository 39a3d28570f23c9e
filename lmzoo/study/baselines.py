"""Count-model baselines for corpora whose entropy is not known.

A study of language models on such a corpus gets two more points, which train in about a second. A
neural model that does not beat the 5-gram has learned less than a table of counts. If the entropy
is known, it is the lower bound, and no baseline is added.
"""

from collections.abc import Sequence

from lmzoo import zoo
from lmzoo.contract import Score
from lmzoo.data.corpus import Corpus
from lmzoo.study.study import Point

BASELINES = (
    Point("unigram count", "ngram_count", {"order": 1}, search={}),
    Point("Kneser-Ney 5-gram", "ngram_count", {"order": 5}, search={}),
)


def baselines(points: Sequence[Point], corpus: Corpus) -> tuple[Point, ...]:
    """Return the baselines of a study; none if none of its points is an exact density."""
    exact = any(zoo.row(point.row).score == Score.EXACT for point in points)
    return BASELINES if exact and corpus.floor is None else ()
