"""Runs of a study whose learning rate falls: their identity, and what may be compared."""

import dataclasses

import pytest

from lmzoo.errors import UserError
from lmzoo.search_space import Choice, FloatRange
from lmzoo.study.resolve import resolve

COSINE = {"recipe.schedule": "cosine"}


def first_run(study, corpus, corpus_fields, setting):
    point = resolve(study, corpus, corpus_fields)[0]
    return point.run_config(setting, 1, corpus)


def test_a_run_of_another_length_is_another_run_only_if_its_rate_falls(
    study, corpus, corpus_fields
):
    for fields, same in (({}, True), (COSINE, False)):
        ids = {
            first_run(
                dataclasses.replace(study, epochs=epochs, fields={**study.fields, **fields}),
                corpus, corpus_fields, {"recipe.lr": 0.01},
            )["run"]
            for epochs in (4, 8)
        }  # fmt: skip
        assert (len(ids) == 1) == same


def test_a_searched_schedule_ends_with_the_study(study, corpus, corpus_fields):
    search = {"recipe.schedule": Choice(("constant", "linear", "cosine"))}
    study = dataclasses.replace(study, search=search, pruner="none")
    point = resolve(study, corpus, corpus_fields)[0]
    assert point.default_setting == {"recipe.schedule": "constant"}
    recipe = point.with_setting({"recipe.schedule": "linear"})[1]
    assert recipe.schedule_epochs == study.epochs


@pytest.mark.parametrize("path", ["recipe.schedule", "recipe.schedule_epochs", "recipe.final_lr"])
def test_runs_at_different_places_of_their_schedules_are_not_compared(
    path, study, corpus, corpus_fields
):
    bounds = FloatRange(0.1, 0.5)
    study = dataclasses.replace(study, search={path: bounds}, fields={**study.fields, **COSINE})
    with pytest.raises(UserError, match=f"{path} is searched, .*; add --pruner none"):
        resolve(study, corpus, corpus_fields)
