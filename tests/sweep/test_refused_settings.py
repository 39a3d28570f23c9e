"""A search may come upon settings that are no model: they count as tried, and it goes on."""

import dataclasses
import json

import pytest

from lmzoo.errors import UserError
from lmzoo.search_space import Choice, IntRange
from lmzoo.store.records import STUDY, read_json
from lmzoo.sweep import Point
from lmzoo.sweep.study_store import SETTINGS

from .byhand import outcome, sweep

CODES = {
    "model.emission.aggregate": Choice(("sigmoid_l1", "code_l1")),
    "model.emission.size": IntRange(1, 4),
}
"""`code_l1` is defined for groups of size 1 only."""


@pytest.fixture
def codes(study):
    """A study whose search comes upon both kinds, from its second generation on."""
    fields = {**study.fields, "model.emission.groups": 3}
    fields.pop("model.emission.components")
    return dataclasses.replace(
        study, points=(Point("codes", "hamming_emission"),), fields=fields, search=CODES,
        samples=8, epochs=2, seed=1,
    )  # fmt: skip


def suggested(path) -> list[dict]:
    return [json.loads(line)["setting"] for line in (path / SETTINGS).read_text().splitlines()]


def sound(setting: dict) -> bool:
    return setting["model.emission.aggregate"] != "code_l1" or setting["model.emission.size"] == 1


def test_the_search_goes_on_behind_it(codes, corpus, corpus_fields, tmp_path, caplog):
    path = tmp_path / "toy"
    assert sweep(codes, corpus, corpus_fields, path)
    tried = suggested(path)
    refused = [setting for setting in tried if not sound(setting)]
    assert refused, "it came upon none: the test sees nothing"
    assert len(tried) == 8
    configs = [read_json(p) for p in path.glob("*/config.json")]
    trained = [c["setting"] for c in configs if c["stage"] == "tune"]
    assert all(sound(setting) for setting in trained)
    assert all(setting in trained for setting in tried if sound(setting))
    (chosen,) = [c["setting"] for c in read_json(path / STUDY)["chosen"].values() if c["setting"]]
    assert sound(chosen)
    told = [text for text in caplog.messages if "is not trained" in text]
    assert len(told) == len(refused)
    assert all("code_l1 compares single numbers; set size=1" in text for text in told)


def test_it_ends_the_same_however_often_it_dies(codes, corpus, corpus_fields, tmp_path):
    assert sweep(codes, corpus, corpus_fields, tmp_path / "calm")
    for life in range(200):
        if sweep(codes, corpus, corpus_fields, tmp_path / "wild", seed=life, steps=3):
            break
    assert outcome(tmp_path / "wild") == outcome(tmp_path / "calm")
    assert suggested(tmp_path / "wild") == suggested(tmp_path / "calm")


def test_a_search_that_finds_no_model_at_all_is_refused_and_nothing_written(
    codes, corpus, corpus_fields, tmp_path
):
    nowhere = {**CODES, "model.emission.aggregate": Choice(("code_l1",))}
    nowhere["model.emission.size"] = IntRange(2, 4)
    wrong = dataclasses.replace(codes, search=nowhere)
    with pytest.raises(UserError, match=r"^point 'codes': .*compares single numbers; .*elsewhere$"):
        sweep(wrong, corpus, corpus_fields, tmp_path / "toy")
    assert not (tmp_path / "toy" / SETTINGS).exists()
