"""A study that adds seeds trains more runs of the undecided points only, whatever interrupts it."""

import dataclasses
import functools
import hashlib

import pytest

from lmzoo import Point
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.train.run_config import model_facts
from tests.lab.sweep.fake_runs import FakeRun
from tests.lab.sweep.local_sweep import sweep

EFFECTS = {"wild type": 0.0, "far": 1.0, "same": 0.0, "near": 0.1}
"""Point -> difference of its losses from the wild type, in nats."""


class RunWithEffect(FakeRun):
    """A run whose test loss is that of its seed, its point and a small noise."""

    def test(self):
        config = self.folder.config
        text = f"{config['point']['label']}/{config['seed']}".encode()
        noise = int(hashlib.md5(text).hexdigest(), 16) % 1000 / 10000
        loss = 3 + EFFECTS.get(config["point"]["label"], 2.0) + noise
        self.training.record["valid_token"] = loss
        return super().test()


def load_run(store, planned, corpus):
    planned.config |= model_facts(planned.config, corpus.task)
    return RunWithEffect(store.run(planned.id), planned)


@pytest.fixture
def undecided(study):
    cuts = ([], [4], [2], [1])
    points = [Point(n, "DLM46", {"cell.cuts": c}) for n, c in zip(EFFECTS, cuts, strict=True)]
    return dataclasses.replace(
        study, points=tuple(points), search={}, epochs=1, seeds=3, max_seeds=24, margin=0.05
    )


@pytest.fixture
def run(corpus, corpus_fields):
    return functools.partial(sweep, corpus=corpus, fields=corpus_fields, open_run=load_run)


def seeds(path) -> dict[str, int]:
    """Return label -> number of confirm runs."""
    study = read_json(path / STUDY)
    labels = {point["id"]: point["label"] for point in study["points"]}
    return {labels[point]: len(own["runs"]) for point, own in study["chosen"].items()}


def test_only_undecided_points_and_the_reference_get_more_seeds(undecided, run, tmp_path):
    assert run(undecided, path=tmp_path)
    assert [look[0] for look in read_json(tmp_path / STUDY)["looks"]] == [3, 6, 12, 24]
    found = seeds(tmp_path)
    assert found["far"] == 3
    assert found["wild type"] == max(found.values()) > 3
    assert all(n in (3, 6, 12, 24) for n in found.values())


def test_no_seeds_are_added_without_the_option(undecided, run, tmp_path):
    assert run(dataclasses.replace(undecided, max_seeds=0), path=tmp_path)
    assert set(seeds(tmp_path).values()) == {3}


def test_interruptions_do_not_change_the_seeds(undecided, run, tmp_path):
    assert run(undecided, path=tmp_path / "undisturbed")
    path = tmp_path / "disturbed"
    for life in range(500):
        if run(undecided, path=path, slots=5, seed=life, steps=4, deaths=0.1):
            break
    assert seeds(path) == seeds(tmp_path / "undisturbed")


def test_a_later_limit_continues_where_the_first_one_ended(undecided, run, tmp_path):
    assert run(dataclasses.replace(undecided, max_seeds=6), path=tmp_path)
    before = seeds(tmp_path)
    assert max(before.values()) == 6
    assert run(undecided, path=tmp_path)
    after = seeds(tmp_path)
    assert all(after[label] >= n for label, n in before.items())


def test_the_planner_and_the_table_agree(undecided, run, tmp_path):
    """A verdict ends a contrast in the sweep exactly when the table shows it."""
    assert run(undecided, path=tmp_path)
    folder = load_study(tmp_path)
    table = rank_points(folder.runs, folder.events, folder.study)
    found = seeds(tmp_path)
    verdicts = {row["label"]: row["verdict"] for row in table.to_dicts() if row["label"] in EFFECTS}
    assert verdicts["far"] == "worse"
    for label in ("far", "same", "near"):
        assert (verdicts[label] == "undecided") <= (found[label] == 24), label
