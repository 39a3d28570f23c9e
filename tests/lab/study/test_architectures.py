"""The study of architectures compares every exact density within one parameter budget."""

from lmzoo import zoo
from lmzoo.contract import MODELS
from lmzoo.data.corpus import open_corpus
from lmzoo.trainables.parameter_budget import count_parameters
from lmzoo.trainables.resolve import corpus_config, resolve
from sweeps.architectures import STUDY


def test_every_exact_row_is_a_point_within_the_budget() -> None:
    fields = corpus_config(STUDY, STUDY.fields)
    corpus = open_corpus({**fields, "train": 10, "valid": 1, "test": 1})
    points = resolve(STUDY, corpus, fields)
    points = [point for point in points if not point.baseline]
    labels = {label for point in points for label in (point.label, *point.aliases)}
    rows = {name for name in zoo.names() if zoo.row(name).model}
    assert labels == {name for name in rows if zoo.row(name).score == "exact"}
    sizes = {point.label: count_parameters(point.model, corpus.task) for point in points}
    assert max(sizes.values()) <= STUDY.parameters
    small = {name for name, size in sizes.items() if size < 0.9 * STUDY.parameters}
    assert all(_cannot_be_wider(name, points, corpus.task) for name in small), small


def _cannot_be_wider(name: str, points: list, task: object) -> bool:
    """True if the point has no width, or the next width exceeds the budget."""
    model = next(point.model for point in points if point.label == name)
    if not hasattr(model, "width"):
        return True
    step = getattr(model, "size", 1)  # of the heads of `h3`, which divide its width
    wider = MODELS.parse({**MODELS.dump(model), "width": model.width + step})
    return count_parameters(wider, task) > STUDY.parameters  # type: ignore[arg-type]
