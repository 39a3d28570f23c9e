"""One flag has one spelling: --json, exit codes, and which commands have a flag."""

import inspect
import json
from collections import defaultdict
from importlib.resources import files

import pytest
import typer.main

from lmzoo.cli.main import COMMANDS, build_app
from lmzoo.lab.cli.sweep import find_studies
from lmzoo.lab.sweep.command import _command
from lmzoo.laws_of_training.parts import Check

FILES_ONLY = {"init", "report", "records", "serve", "sweep", "export"}
"""Commands that print where something is, or code; `lmzoo sweep STUDY` has the flag."""


def command_named(name):
    group = typer.main.get_command(build_app(name))
    return group.commands[name]


def command_of_a_study():
    app = typer.Typer(add_completion=False)
    (study,) = find_studies("gru_ablation")
    app.command()(_command(study))
    return typer.main.get_command(app)


def flags_of(command):
    flags = set()
    for parameter in command.params:
        flags.update(parameter.opts)
    return flags


@pytest.mark.parametrize("name", COMMANDS)
def test_the_flag_has_one_spelling_and_every_help_has_the_exit_codes(name):
    command = command_named(name)
    flags = flags_of(command)
    assert ("--json" in flags) is (name not in FILES_ONLY)
    assert flags.isdisjoint({"--as-json", "--to-json"})
    assert "The exit code is 0" in inspect.cleandoc(command.epilog)


def flags_text() -> str:
    """Return the content of `lmzoo/base/flags.toml`."""
    owners = defaultdict(list)
    for name in COMMANDS:
        flags = flags_of(command_named(name))
        if name == "sweep":
            flags |= flags_of(command_of_a_study())
        for flag in flags:
            # A short flag is another spelling of a long one.
            if flag.startswith("--"):
                owners[flag].append(name)
    lines = [f"{flag} = {json.dumps(owners[flag])}\n" for flag in sorted(owners)]
    return "".join(lines)


def test_the_file_of_flags_has_the_commands_of_each():
    written = files("lmzoo.base").joinpath("flags.toml").read_text("utf-8")
    assert written == flags_text()


OF_OTHERS = {
    "--higher-is-better": "no option '--higher-is-better'; lmzoo judge or plan",
    "--epochs": "lmzoo sweep",
    "--until-decided": "lmzoo sweep has it",
}


@pytest.mark.parametrize("flag", OF_OTHERS)
def test_an_unknown_flag_that_another_command_has_names_that_command(flag, refused, tmp_path):
    error = refused("rank", tmp_path, flag, "3")
    assert OF_OTHERS[flag] in error


def test_a_flag_that_no_command_has_names_none(refused, tmp_path):
    assert "has it" not in refused("rank", tmp_path, "--nowhere")


@pytest.fixture
def read(printed):
    """Run `lmzoo` with --json and return what a program reads."""

    def call(*words):
        return json.loads(printed(*words, "--json"))

    return call


def test_describe_has_the_facts_of_a_row_that_it_prints(read, printed):
    row = read("describe", "gru", "--set", "width=64")
    by_default = read("describe", "gru")
    shown = printed("describe", "gru", "--set", "width=64")
    parameters = row["parameters"]
    assert row["name"] == "gru"
    assert row["config"]["width"] == 64
    assert row["state"] == "64 floats"
    assert parameters > by_default["parameters"]
    assert f"{parameters:,} parameters" in shown
    assert row["search"]["width"] == "8:256:log"


def test_describe_has_the_facts_of_a_recipe_and_of_a_corpus(read, tmp_path):
    recipe = read("describe", "recipe")
    captions = read("describe", "captions")
    assert recipe["fields"]["recipe.lr"] == 0.01
    assert captions["fields"]["corpus.train"] == 4000
    text = tmp_path / "own.txt"
    text.write_text("a b c\n" * 30)
    own = read("describe", f"text:{text}")
    assert "30 lines" in " ".join(own["facts"])


@pytest.fixture
def run(read, tmp_path):
    """Return what `lmzoo train` says of a run of two epochs."""
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    small = ("--set", "model.width=4", "--epochs", "2", "--out", tmp_path / "runs")
    return read("train", "gru", "--corpus", f"text:{text}", small)


def test_a_run_is_read_by_a_program(run):
    epochs = [record["epoch"] for record in run["records"] if record["event"] == "epoch"]
    assert run["parameters"] > 0
    assert epochs == [1, 2]


def test_samples_are_read_by_a_program(run, read):
    drawn = read("sample", run["folder"], "--count", "3")
    short = read("sample", run["folder"], "--length", "2", "--count", "9")
    # Only beams have one.
    assert [each["log_prob"] for each in drawn] == [None, None, None]
    for each in short:
        assert len(each["text"].split()) <= 2


def test_beams_are_read_by_a_program(run, read, printed):
    best, second = read("sample", run["folder"], "--beam", "2")
    shown = printed("sample", run["folder"], "--beam", "2")
    assert best["log_prob"] >= second["log_prob"]
    assert best["text"] in shown


def even_numbers(number):
    assert number % 2 == 0, f"{number} is odd"


def test_laws_are_read_by_a_program(lmzoo, monkeypatch):
    laws = [Check("cell a", even_numbers, lambda: 2), Check("cell b", even_numbers, lambda: 3)]
    # One law that holds and one that fails.
    monkeypatch.setattr("lmzoo.cli.check.checks", lambda name: laws)
    code, out, _ = lmzoo("check", "json", "--json")
    _, shown, _ = lmzoo("check", "json")
    holds, fails = json.loads(out)
    law = "even numbers"
    assert code == 1
    assert holds.items() >= {"part": "cell a", "law": law, "holds": True, "fault": ""}.items()
    assert fails.items() >= {"part": "cell b", "law": law, "holds": False}.items()
    assert fails["fault"] == "3 is odd"
    assert f"fails  cell b: {law}: 3 is odd" in shown
