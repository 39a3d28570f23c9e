"""`--repeat-tuning N`: N tunings with other seeds, whose spread enters the intervals."""

import dataclasses
import functools
from hashlib import md5

import numpy as np
import pytest

from lmzoo.base.search_space import FloatRange
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.statistics.intervals import choice_spread
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.train.run_config import model_facts
from tests.lab.sweep.fake_runs import open_fake_run
from tests.lab.sweep.local_sweep import outcome, sweep


@pytest.fixture
def tuned(study):
    space = {"recipe.lr": FloatRange(1e-3, 2e-1, log=True)}
    return dataclasses.replace(study, search=space, samples=5, epochs=12, seeds=2)


def open_run(store, planned, corpus):
    planned.config |= model_facts(planned.config, corpus.task)
    return open_fake_run(store, planned, corpus)


@pytest.fixture
def run(corpus, corpus_fields, monkeypatch):
    """A sweep in which only chance decides between the settings."""
    monkeypatch.setattr(
        "tests.lab.sweep.fake_runs.fake_loss",
        lambda run, rate, epoch: 2 + int(md5(run.encode()).hexdigest()[:4], 16) / 2**18 + 1 / epoch,
    )
    return functools.partial(sweep, corpus=corpus, fields=corpus_fields, open_run=open_run)


def test_the_measured_spread_enters_and_the_first_tuning_is_unchanged(tuned, run, tmp_path):
    once, often = tmp_path / "once", tmp_path / "often"
    repeated = dataclasses.replace(tuned, repeat_tuning=3)
    assert run(tuned, path=once)
    assert run(repeated, path=often, slots=3)
    assert outcome(once).items() <= outcome(often).items()
    before, after = (read_json(path / STUDY)["chosen"] for path in (once, often))
    searched = [point for point, own in after.items() if "tunings" in own]
    assert len(searched) == 3, "all but the count model; two points are one function"
    spreads = []
    for point, own in after.items():
        assert [own[key] for key in ("setting", "runs")] == [
            before[point][key] for key in ("setting", "runs")
        ]
        if point in searched:
            settings = [own["setting"], *own["tunings"]]
            spreads.append(choice_spread([losses_of(often, point, s) for s in settings]))
            expected = max(before[point]["tuning_sd"], spreads[-1])
            assert own["tuning_sd"] == pytest.approx(expected, rel=0.05)
    assert max(spreads) > 0, "some tuning chose another setting"
    # The ranking has the confirm runs of the first tuning only.
    folder = load_study(often)
    table = rank_points(folder.runs, folder.events, folder.study)
    assert set(table.filter(table["point"].is_in(searched))["runs"]) == {tuned.seeds}


def losses_of(path, point, setting):
    """Return the test losses of the confirm runs of a point with a setting."""
    folder = load_study(path)
    runs = folder.runs.collect().filter(point=point, stage="confirm").to_dicts()
    tests = dict(folder.events.collect().filter(event="test").select("run", "token").iter_rows())
    same = [r for r in runs if read_json(path / r["run"] / "config.json")["setting"] == setting]
    return [tests[r["run"]] for r in sorted(same, key=lambda r: r["seed"])]


def test_an_interrupted_sweep_gives_the_same_study(tuned, run, tmp_path):
    repeated = dataclasses.replace(tuned, repeat_tuning=2)
    assert run(repeated, path=tmp_path / "whole")
    assert not run(repeated, path=tmp_path / "parts", steps=150, slots=3)
    assert run(repeated, path=tmp_path / "parts", seed=1, deaths=0.02)
    whole, parts = (read_json(tmp_path / name / STUDY) for name in ("whole", "parts"))
    assert whole["chosen"] == parts["chosen"]
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "parts")


def test_a_spread_is_that_of_the_common_seeds():
    losses = np.array([[1.0, 2.0, np.nan], [1.2, 2.2, 9.0]])
    assert choice_spread(losses) == pytest.approx(0.2 / 2**0.5)
    assert choice_spread(losses[:1]) == choice_spread(losses[:, 2:]) == 0.0
