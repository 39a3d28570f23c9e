"""The study of architectures: nothing exact is left out, nobody gets more than the budget."""

from lmzoo import zoo
from lmzoo.contract import MODELS
from lmzoo.data.open import open_corpus
from lmzoo.sweep.parameter_budget import count
from lmzoo.sweep.resolve import corpus_config, resolve
from sweeps.architectures import STUDY


def test_every_exact_row_is_a_point_within_the_budget() -> None:
    fields = corpus_config(STUDY, STUDY.fields)
    corpus = open_corpus({**fields, "train": 10, "valid": 1, "test": 1})
    points = resolve(STUDY, corpus, fields)
    labels = {label for point in points for label in (point.label, *point.aliases)}
    rows = {name for name in zoo.names() if zoo.row(name).model}
    assert labels == {name for name in rows if zoo.row(name).score == "exact"}
    sizes = {point.label: count(point.model, corpus.task) for point in points}
    assert max(sizes.values()) <= STUDY.parameters
    small = {name for name, size in sizes.items() if size < 0.9 * STUDY.parameters}
    # What has no width, and what one step of width takes past the budget.
    assert all(_next(name, points, corpus.task) for name in small), small


def _next(name: str, points: list, task: object) -> bool:
    model = next(point.model for point in points if point.label == name)
    if not hasattr(model, "width"):
        return True
    wider = MODELS.read({**MODELS.write(model), "width": model.width + 1})
    return count(wider, task) > STUDY.parameters  # type: ignore[arg-type]
