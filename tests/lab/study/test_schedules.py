"""Runs of a study whose learning rate falls: their identity, and what may be compared."""

import dataclasses

import pytest

from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange
from lmzoo.lab.store.records import CONFIG, RunFolder, epoch_records, read_json
from lmzoo.trainables.resolve import resolve
from tests.lab.sweep.local_sweep import sweep

COSINE = {"recipe.schedule": "cosine"}


def first_run(study, corpus, corpus_fields, setting):
    point = resolve(study, corpus, corpus_fields)[0]
    return point.run_config(setting, 1)


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


@pytest.mark.parametrize("path", ["recipe.schedule", "recipe.schedule_epochs", "recipe.final_lr"])
def test_runs_at_different_places_of_their_schedules_are_not_compared(
    path, study, corpus, corpus_fields
):
    bounds = FloatRange(0.1, 0.5)
    study = dataclasses.replace(study, search={path: bounds}, fields={**study.fields, **COSINE})
    with pytest.raises(UserError, match=f"{path} is searched, .*; add --pruner none"):
        resolve(study, corpus, corpus_fields)


def test_a_constant_rate_is_searched_beside_falling_ones(study, corpus, corpus_fields):
    """The fields that a constant rate cannot have are dropped, so its settings are one run."""
    search = {
        "recipe.schedule": Choice(("constant", "cosine")),
        "recipe.final_lr": FloatRange(0.1, 0.5),
    }
    fields = {**study.fields, **COSINE}
    study = dataclasses.replace(study, search=search, pruner="none", fields=fields)
    runs = {
        first_run(
            study, corpus, corpus_fields, {"recipe.schedule": schedule, "recipe.final_lr": share}
        )["run"]
        for schedule in ("constant", "cosine")
        for share in (0.1, 0.2)
    }
    assert len(runs) == 3


def test_tune_and_confirm_runs_train_as_long_as_their_schedule(
    study, corpus, corpus_fields, tmp_path
):
    fields = {**study.fields, **COSINE}
    study = dataclasses.replace(
        study, points=study.points[:1], fields=fields, epochs=2, samples=2, seeds=1, pruner="none"
    )
    assert sweep(study, corpus, corpus_fields, tmp_path)
    stages = set()
    for path in tmp_path.glob(f"*/{CONFIG}"):
        config, records = read_json(path), RunFolder(path.parent).records()
        if config["model"]["name"] != "ngram_count":
            assert config["recipe"]["schedule_epochs"] == len(epoch_records(records)) == 2
            stages.add(config["stage"])
    assert stages == {"tune", "confirm"}
    # The length of the schedule is 2 by now: a study of three epochs has other runs and points.
    longer = dataclasses.replace(study, epochs=3)
    ids = {resolve(s, corpus, corpus_fields)[0].id for s in (study, longer)}
    assert len(ids) == 2
    set_to_two = dataclasses.replace(longer, fields={**fields, "recipe.schedule_epochs": 2})
    with pytest.raises(UserError, match="ends before the budget of 3 epochs"):
        resolve(set_to_two, corpus, corpus_fields)
