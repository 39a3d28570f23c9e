"""The crash test of judges: its population, its measures and its judges."""

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.crash_test import population


def test_packs_have_every_training_once_and_tune_first():
    studies = population.studies()
    packs = population.packs(studies, 128)
    members = [(pack.study, *member) for pack in packs for member in pack.members]
    assert len(set(members)) == len(members) > 200_000
    assert max(len(pack.members) for pack in packs) == 128
    first = {}
    for pack in packs:
        first.setdefault(pack.study, pack.members[0][0])
    assert set(first) == set(range(len(studies)))
    assert set(first.values()) <= set(population.TUNE)
    assert population.studies() == studies


def test_a_pack_is_trained_and_not_again(tmp_path):
    train = importlib.import_module("benchmarks.crash_test.train")
    study = next(i for i, s in enumerate(population.studies()) if s.name == "tanh, recall, 0")
    options = type("Options", (), {"seed": 0, "device": "cpu", "data_dir": None})()
    trainer = train.PackTrainer(options)
    pack = population.Pack(study, (), (("base", 0), ("renamed", 0), ("lr*2", 0)))
    line = trainer.train(pack, 0.01)
    curves = line["valid"]
    assert [len(curve) for curve in curves] == [6, 6, 6]
    assert curves[0] == pytest.approx(curves[1], abs=1e-5)  # the same function in other words
    assert curves[0][-1] != pytest.approx(curves[2][-1], abs=1e-3)
    assert curves[0][-1] < curves[0][0]

    options.out, options.members, options.studies = tmp_path, 3, 100
    run = train.Run(options)
    run._write(line)
    again = train.Run(options)
    assert again.done == {(line["study"], name, 0) for name in ("base", "renamed", "lr*2")}
    assert next(iter(train.read_lines(tmp_path)))["seed"] == [0, 0, 0]
