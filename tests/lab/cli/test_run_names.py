"""One way to name a run in every subcommand that reads one."""

import json
import shutil
from pathlib import Path

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.cli.run_names import find_run, find_studied
from lmzoo.lab.store.archive import archive_runs
from lmzoo.lab.store.records import RECORDS, STUDY, RunFolder, json_bytes
from tests.cases import cases
from tests.cli.run_lmzoo import run_lmzoo

COMMANDS = ("sample", "score", "audit")
"""Subcommands that read a run."""
ARGUMENTS = {"score": ["a man runs"]}
"""What a command needs besides the run."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    text = out / "own.txt"
    text.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    small = ["--set", "model.width=4", "--set", "model.emission.components=3"]
    small += ["--set", "corpus.length=6", "--corpus", f"text:{text}", "--epochs", "1"]
    for seed in (1, 2):
        options = ["--cuts", "4", "--seed", seed, "--out", out / "runs"]
        assert run_lmzoo("train", "DLM46", small, options) == 0
    return out / "runs"


@pytest.fixture
def runs(trained, tmp_path, monkeypatch) -> Path:
    runs = tmp_path / "runs"
    study = runs / "toy-text"
    shutil.copytree(trained, study)
    names = sorted(path.name for path in study.iterdir())
    point = {"id": "aa11", "label": "cut 4", "aliases": [], "cell": "mgu"}
    other = {"id": "bb22", "label": "wild type", "aliases": [], "cell": "mgu"}
    chosen = {"aa11": {"runs": names, "setting": {}}}
    content = {"name": "toy", "points": [point, other], "chosen": chosen}
    (study / STUDY).write_bytes(json_bytes(content))
    for name, loss in zip(names, (2.0, 1.0), strict=True):
        line = {"event": "epoch", "epoch": 1, "valid_token": loss}
        (study / name / RECORDS).write_text(json.dumps(line) + "\n")
    monkeypatch.chdir(tmp_path)
    return runs


def best(runs: Path) -> Path:
    # The other is "study.json".
    folders = [path for path in (runs / "toy-text").iterdir() if path.is_dir()]
    _, second = sorted(folders)
    return second


SPELLINGS = ["cut 4", "4", "state_to_candidate", "cut state_to_candidate (4)", "aa11"]


@pytest.mark.parametrize("study", ["toy", "toy-text", "runs/toy-text"])
@pytest.mark.parametrize("point", SPELLINGS)
def test_a_point_is_its_confirm_run_with_the_lowest_validation_loss(runs, study, point):
    found = find_run(f"{study}:{point}")
    assert found.resolve() == best(runs)


def test_a_diverged_run_is_never_the_best(runs):
    end = {"event": "end", "epoch": 1, "status": "diverged", "reason": ""}
    RunFolder(best(runs)).append(end)
    # Its loss before it diverged may be the lowest.
    assert find_run("toy:4").name != best(runs).name


def test_a_folder_and_a_row_name_a_run(runs, trained):
    run = best(runs)
    checkpoints = list(trained.glob("*/checkpoint.pt"))
    latest = max(checkpoints, key=lambda path: path.stat().st_mtime)
    assert find_run(str(run)) == run
    assert find_run("DLM46", trained).name == latest.parent.name


def test_an_archived_run_gets_its_folder_when_it_is_named(runs):
    run = best(runs)
    for name in ("toy:4", str(run)):
        # As a sweep does with runs that have ended.
        archive_runs(run.parent, [run.name])
        assert not run.exists()
        assert find_run(name).resolve() == run
        assert (run / "checkpoint.pt").exists()


def test_a_row_without_a_run_has_no_trained_weights(runs):
    with pytest.raises(UserError, match="no run of gru in runs; train one with `lmzoo train gru`"):
        find_run("gru")


@pytest.mark.usefixtures("runs")
@cases("lab/cli/cases.toml", "no_runs", "name, message")
def test_an_unknown_name_gives_one_line(name, message, refused):
    assert message in refused("score", name, ARGUMENTS["score"])


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_name_gives_one_line_in_every_command(command, refused):
    assert "no study 'toyy'" in refused(command, "toyy:4", ARGUMENTS.get(command, ()))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_the_named_run(command, runs, lmzoo):
    for name in ("toy:4", best(runs)):
        code, out, err = lmzoo(command, name, ARGUMENTS.get(command, ()))
        assert code == 0
        assert "error" not in err
        assert out


def test_a_name_has_a_study_and_a_point(runs):
    folder = Path("runs/toy-text")
    assert find_studied("toy") == (folder, "")
    assert find_studied("toy:state_to_candidate") == (folder, "state_to_candidate")
