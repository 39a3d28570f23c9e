"""Suggestions are a pure function of the tried settings, and improve with them."""

from lmzoo.search_space import Choice, FloatRange, IntRange
from lmzoo.sweep.search import TriedSetting, suggest

SPACE = {
    "recipe.lr": FloatRange(1e-3, 1e-1, log=True),
    "model.width": IntRange(8, 64),
    "model.norm": Choice(("rms", "l2")),
}


def _tried(setting: dict, value: float, *, pruned: bool = False) -> TriedSetting:
    return TriedSetting(setting, value, pruned, {1: value + 1, 2: value})


def test_suggestions_depend_only_on_the_tried_settings_and_the_seed():
    tried = [_tried(s, i) for i, s in enumerate(suggest(SPACE, [], 8, seed=1))]
    assert suggest(SPACE, tried, 4, seed=2) == suggest(SPACE, tried, 4, seed=2)
    assert suggest(SPACE, tried, 4, seed=2)[:2] == suggest(SPACE, tried, 2, seed=2)
    assert suggest(SPACE, tried, 4, seed=2) != suggest(SPACE, tried, 4, seed=3)


def test_suggestions_are_in_the_search_space():
    for setting in suggest(SPACE, [], 20, seed=0):
        assert 1e-3 <= setting["recipe.lr"] <= 1e-1
        assert setting["model.width"] in range(8, 65)
        assert setting["model.norm"] in ("rms", "l2")


def test_suggestions_improve_with_finished_and_pruned_runs():
    space = {"recipe.lr": FloatRange(0.0, 1.0)}
    tried: list[TriedSetting] = []
    for g in range(15):
        for setting in suggest(space, tried, 2, seed=g):
            loss = (setting["recipe.lr"] - 0.8) ** 2
            tried.append(_tried(setting, loss, pruned=loss > 0.1))
    late = [t.setting["recipe.lr"] for t in tried[-10:]]
    assert sum(abs(lr - 0.8) < 0.2 for lr in late) >= 7  # random search gives 4 on average
