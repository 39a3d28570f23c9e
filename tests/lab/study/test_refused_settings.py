"""A suggested setting that the model refuses counts as tried, and the search continues."""

import dataclasses
import json

import pytest

from lmzoo import Point
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, IntRange
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.study_store import SETTINGS
from tests.lab.sweep.local_sweep import outcome, sweep

CODES = {
    "model.emission.aggregate": Choice(("sigmoid_l1", "code_l1")),
    "model.emission.size": IntRange(1, 4),
}
"""The model refuses `code_l1` unless the size is 1."""


@pytest.fixture
def codes(study):
    """A study whose search suggests valid and refused settings from its second generation on."""
    fields = {**study.fields, "model.emission.groups": 3}
    fields.pop("model.emission.components")
    return dataclasses.replace(
        study, points=(Point("codes", "hamming_emission"),), fields=fields, search=CODES,
        samples=8, epochs=2, seed=1,
    )  # fmt: skip


def suggested(path) -> list[dict]:
    return [json.loads(line)["setting"] for line in (path / SETTINGS).read_text().splitlines()]


def is_valid(setting: dict) -> bool:
    return setting["model.emission.aggregate"] != "code_l1" or setting["model.emission.size"] == 1


def test_the_search_continues_after_a_refused_setting(
    codes, corpus, corpus_fields, tmp_path, caplog
):
    path = tmp_path / "toy"
    assert sweep(codes, corpus, corpus_fields, path)
    tried = suggested(path)
    refused = [setting for setting in tried if not is_valid(setting)]
    assert refused, "no setting was refused, so nothing was tested"
    assert len(tried) == 8
    configs = [read_json(p) for p in path.glob("*/config.json")]
    trained = [c["setting"] for c in configs if c["stage"] == "tune"]
    assert all(is_valid(setting) for setting in trained)
    assert all(setting in trained for setting in tried if is_valid(setting))
    (chosen,) = [c["setting"] for c in read_json(path / STUDY)["chosen"].values() if c["setting"]]
    assert is_valid(chosen)
    warnings = [text for text in caplog.messages if "is not trained" in text]
    assert len(warnings) == len(refused)
    assert all("aggregate=code_l1 needs size=1" in text for text in warnings)


def test_repeated_deaths_do_not_change_the_results(codes, corpus, corpus_fields, tmp_path):
    assert sweep(codes, corpus, corpus_fields, tmp_path / "undisturbed")
    for life in range(200):
        if sweep(codes, corpus, corpus_fields, tmp_path / "disturbed", seed=life, steps=3):
            break
    assert outcome(tmp_path / "disturbed") == outcome(tmp_path / "undisturbed")
    assert suggested(tmp_path / "disturbed") == suggested(tmp_path / "undisturbed")


def test_a_search_space_without_a_valid_setting_is_refused_and_nothing_is_written(
    codes, corpus, corpus_fields, tmp_path
):
    nowhere = {**CODES, "model.emission.aggregate": Choice(("code_l1",))}
    nowhere["model.emission.size"] = IntRange(2, 4)
    wrong = dataclasses.replace(codes, search=nowhere)
    message = r"^point 'codes': --search-space .*'code_l1' is not accepted: .*code_l1 needs size=1$"
    with pytest.raises(UserError, match=message):
        sweep(wrong, corpus, corpus_fields, tmp_path / "toy")
    assert not (tmp_path / "toy" / SETTINGS).exists()
