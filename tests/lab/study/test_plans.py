"""Whole plans of small studies, as they are in `plans.txt`: settings, seeds, ends and choices."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.lab.store.records import read_json, run_identity
from lmzoo.lab.store.user_code import UserCode
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study import Point, Study
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.study.trainable import Trainable
from tests.lab.sweep import local_sweep
from tests.lab.sweep.fake_runs import open_fake_run

EXPECTED = Path(__file__).with_name("plans.txt")
ONE = {"recipe.lr": FloatRange(1e-4, 0.1, log=True)}
TWO = {**ONE, "recipe.batch": IntRange(8, 64, log=True)}
STUDY = Study(
    name="s",
    question="?",
    points=(Point("a", "r"), Point("b", "r"), Point("c", "r")),
    search=ONE,
    samples=7,
    epochs=12,
    seeds=2,
    sampler="random",
)
STUDIES = {
    "halving, a diverged setting": {"search": {"recipe.lr": FloatRange(1e-4, 0.3, log=True)}},
    "halving, the best is the last": {
        "search": {"recipe.lr": FloatRange(5e-4, 8e-3, log=True)},
        "points": tuple(Point(name, "r") for name in "abcde"),
        "samples": 8,
    },
    "halving, early rungs, two fields": {"grace": 2, "search": TWO, "samples": 9, "epochs": 9},
    "asha": {"pruner": "asha", "samples": 8},
    "until decided, settings first": {"max_seeds": 12, "samples": 4, "epochs": 4},
    "one setting": {"samples": 1, "epochs": 2},
    "until decided": {"max_seeds": 12, "seeds": 3, "search": {}, "epochs": 2, "margin": 0.05},
}


class Toy(Trainable):
    code = UserCode()
    failure_loss = 9.0

    @property
    def default_setting(self):
        defaults = {"recipe.lr": 0.01, "recipe.batch": 16}
        return {path: defaults[path] for path in self.search_space}

    def run_config(self, setting, seed):
        if setting.get("recipe.lr", 0) > 0.05:
            # As a model that refuses a setting.
            raise UserError("no rate is so high")
        recipe = {"lr": 0.01}
        for path, value in setting.items():
            recipe[path.removeprefix("recipe.")] = value
        fields = dict.fromkeys(("numerics", "corpus", "fingerprint", "vocab", "length"))
        config = {**fields, "model": self.id, "recipe": recipe, "seed": seed}
        return {**config, "run": run_identity(config)}

    def facts(self):
        return {"score": "exact", "leaks": ""}


def plan(study: Study, path: Path) -> str:
    space = dict(study.search)
    points = [Toy(p.label, p.label, space, study.epochs) for p in study.points]
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(local_sweep, "resolve", lambda *_: points)
        sweep = {"slots": 3, "open_run": open_fake_run}
        for steps in (40, 10**6):  # an interruption
            local_sweep.sweep(study, None, None, path, steps=steps, **sweep)
        store = StudyStore(path)
        stack.callback(store.close)
        planner = Planner(study, points, store)
    lines = []
    for point in planner.points:
        lines.append(f"{point.point.label}")
        for run in point.tune_runs + point.confirm_runs:
            setting = " ".join(f"{value:.3g}" for value in run.config["setting"].values())
            seed = run.config.get("seed")
            # A run without an epoch has no loss.
            loss = f"{run.best_loss or 9:.3f}"
            lines.append(f"  {run.stage} {setting} {seed} {run.status} {run.last_epoch} {loss}")
    for label, chosen in read_json(path / "study.json")["chosen"].items():
        chosen["tuning_sd"] = chosen["tuning_sd"] > 0
        chosen["runs"] = len(chosen["runs"])
        lines.append(f"{label}: {chosen}")
    looks = [tuple(look) for look in planner.looks]
    lines.append(f"looks {looks}")
    return "\n".join(lines)


@pytest.mark.parametrize("name", STUDIES)
def test_a_plan_is_the_expected_one(name, tmp_path):
    expected = EXPECTED.read_text()
    text = f"== {name}\n{plan(replace(STUDY, **STUDIES[name]), tmp_path)}\n"
    assert text in expected, text
