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

FILES_ONLY = {"init", "report", "records", "serve", "sweep"}
"""Commands that print where something is; `lmzoo sweep STUDY` has the flag."""


def flags_of(command):
    run = typer.main.get_command(build_app(command))
    (found,) = [own for name, own in run.commands.items() if name == command]
    return {name for parameter in found.params for name in parameter.opts}, found.epilog


def flags_of_a_study():
    app = typer.Typer(add_completion=False)
    (study,) = find_studies("gru_ablation")
    app.command()(_command(study))
    parameters = typer.main.get_command(app).params
    return {name for parameter in parameters for name in parameter.opts}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flag_has_one_spelling_and_every_help_has_the_exit_codes(command):
    flags, epilog = flags_of(command)
    assert ("--json" in flags) is (command not in FILES_ONLY)
    assert not flags & {"--as-json", "--to-json"}
    assert "The exit code is 0" in inspect.cleandoc(epilog)


def flags_text() -> str:
    """Return the content of `lmzoo/base/flags.toml`."""
    owners = defaultdict(list)
    for command in COMMANDS:
        own, _ = flags_of(command)
        if command == "sweep":
            own |= flags_of_a_study()
        for flag in own:
            if flag.startswith("--"):
                owners[flag].append(command)
    return "".join(f"{flag} = {json.dumps(owners[flag])}\n" for flag in sorted(owners))


def test_an_unknown_flag_that_another_command_has_names_that_command(refused, tmp_path):
    assert files("lmzoo.base").joinpath("flags.toml").read_text("utf-8") == flags_text()
    assert "no option '--higher-is-better'; lmzoo judge or plan" in refused(
        "rank", tmp_path, "--higher-is-better"
    )
    assert "lmzoo sweep" in refused("rank", tmp_path, "--epochs", "3")
    assert "lmzoo sweep has it" in refused("rank", tmp_path, "--until-decided")
    assert "has it" not in refused("rank", tmp_path, "--nowhere")


def printed(lmzoo, *words):
    code, out, _ = lmzoo(*words, "--json")
    assert code == 0
    return json.loads(out)


def test_describe_has_the_facts_that_it_prints(lmzoo, tmp_path):
    row = printed(lmzoo, "describe", "gru", "--set", "width=64")
    assert row["name"] == "gru"
    assert row["config"]["width"] == 64
    assert row["state"] == "64 floats"
    assert row["parameters"] > printed(lmzoo, "describe", "gru")["parameters"]
    assert f"{row['parameters']:,} parameters" in lmzoo("describe", "gru", "--set", "width=64")[1]
    assert row["search"]["width"] == "8:256:log"
    recipe = printed(lmzoo, "describe", "recipe")
    assert recipe["fields"]["recipe.lr"] == 0.01
    assert printed(lmzoo, "describe", "captions")["fields"]["corpus.train"] == 4000
    (tmp_path / "own.txt").write_text("a b c\n" * 30)
    assert any(
        "30 lines" in line
        for line in printed(lmzoo, "describe", f"text:{tmp_path / 'own.txt'}")["facts"]
    )


def test_a_run_and_its_sentences_are_read_by_a_program(lmzoo, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    small = ("--set", "model.width=4", "--epochs", "2", "--out", tmp_path / "runs")
    run = printed(lmzoo, "train", "gru", "--corpus", f"text:{text}", *small)
    assert run["parameters"] > 0
    assert [own["epoch"] for own in run["records"] if own["event"] == "epoch"] == [1, 2]
    drawn = printed(lmzoo, "sample", run["folder"], "--count", "3")
    assert [own["log_prob"] for own in drawn] == [None] * 3
    best = printed(lmzoo, "sample", run["folder"], "--beam", "2")
    assert best[0]["log_prob"] >= best[1]["log_prob"]
    assert best[0]["text"] in lmzoo("sample", run["folder"], "--beam", "2")[1]
    long = printed(lmzoo, "sample", run["folder"], "--length", "2", "--count", "9")
    assert max(len(own["text"].split()) for own in long) <= 2


def even_numbers(number):
    assert number % 2 == 0, f"{number} is odd"


def test_laws_are_read_by_a_program(lmzoo, monkeypatch):
    laws = [Check("cell a", even_numbers, lambda: 2), Check("cell b", even_numbers, lambda: 3)]
    monkeypatch.setattr("lmzoo.cli.check.checks", lambda name: laws)
    code, out, _ = lmzoo("check", "json", "--json")
    assert code == 1
    found = [(own["part"], own["law"], own["holds"], own["fault"]) for own in json.loads(out)]
    law = "even numbers"
    assert found == [("cell a", law, True, ""), ("cell b", law, False, "3 is odd")]
    assert f"fails  cell b: {law}: 3 is odd" in lmzoo("check", "json")[1]
