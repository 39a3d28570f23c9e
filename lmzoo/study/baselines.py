"""Count-model baselines of every study of language models.

A study on a text gets two more points, which train in about a second. A neural model that does not
beat the 5-gram has learned less than a table of counts, and no entropy floor says so. Tasks have
none: their answers follow from rules, and their measure is the accuracy.
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
    """Return the baselines; none on a task, or if no point of the study is an exact density."""
    exact = any(zoo.row(point.row).score == Score.EXACT for point in points)
    return BASELINES if exact and not corpus.test.is_task else ()
