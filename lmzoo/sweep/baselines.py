"""The floor of seriousness: what counting alone makes of data whose entropy nobody knows.

A study of language models on such a corpus gets two more points by itself, which cost
about a second: a neural row that loses to the second has learned less than a table of
counts. Where the entropy is known, it is the floor.
"""

from collections.abc import Sequence

from lmzoo import zoo
from lmzoo.contract import Score
from lmzoo.data.corpus import Corpus
from lmzoo.sweep.study import Point

BASELINES = (
    Point("unigram count", "ngram_count", {"order": 1}, search={}),
    Point("Kneser-Ney 5-gram", "ngram_count", {"order": 5}, search={}),
)


def baselines(points: Sequence[Point], corpus: Corpus) -> tuple[Point, ...]:
    """The points to stand beside these; none where no exact density is ranked."""
    ranked = any(zoo.row(point.row).score == Score.EXACT for point in points)
    return BASELINES if ranked and corpus.floor is None else ()
