"""The command `lmzoo` and its list of subcommands."""

import subprocess
import sys
import warnings

import pytest

from lmzoo import __version__
from lmzoo.cli.main import COMMANDS, build_app

MODULES_AFTER_HELP = """
import sys
from lmzoo.cli.main import main
sys.argv = {argv!r}
try:
    main()
finally:
    print("imported:", *sorted({{name.split(".")[0] for name in sys.modules}} & {{"torch", "ray"}}))
"""


@pytest.mark.parametrize("arguments", [["rank", "--help"], ["--help"]])
def test_help_imports_neither_torch_nor_ray(arguments: list[str]) -> None:
    script = MODULES_AFTER_HELP.format(argv=["lmzoo", *arguments])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "imported:"


def test_help_lists_every_subcommand(lmzoo) -> None:
    code, out, _ = lmzoo("--help")
    assert code == 0
    for name, (_, summary) in COMMANDS.items():
        assert any(name in line and summary[:30] in line for line in out.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_a_function_with_help(name: str, lmzoo) -> None:
    assert build_app(name)
    code, out, _ = lmzoo(name, "--help")
    assert code == 0
    assert f" {name} " in out


def test_an_unknown_subcommand_is_one_line(lmzoo) -> None:
    code, out, err = lmzoo("rnak")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "rnak" in err


def test_the_version_is_that_of_the_package(lmzoo) -> None:
    assert lmzoo("--version") == (0, f"lmzoo {__version__}\n", "")


def test_an_old_option_works_and_warns_in_one_line(lmzoo) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = lmzoo("train", "DLM46", "--mutations", "6,7")
    first, second = err.splitlines()
    assert (code, "use --cuts" in first, "leave h = 0" in second) == (2, True, True)
    assert lmzoo("train", "DLM46", "--cuts", "6,7")[2] == f"{second}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("traim",), "near: train"),
        (("RANK", "x"), "near: rank"),
        (("train", "gru", "--epoch", "1"), "near: --epochs"),
        (("train", "gru", "--lr", "0.1"), "--set recipe.lr=VALUE"),
    ],
)
def test_unknown_subcommands_and_options_get_a_suggestion(lmzoo, words, said) -> None:
    code, _, err = lmzoo(*words)
    assert (code, err.count("\n"), said in err) == (2, 1, True), err


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("train", "gru", "--epochs", "1e23"), "'1e23'"),
        (("train", "gru", "--epochs", str(10**22)), f"'{10**22}'"),
        (("train", "gru", "--seed", str(2**63)), f"'{2**63}'"),
        (("sample", "run", "--temperature", "1,5"), "'1,5'"),
    ],
)
def test_the_value_of_an_option_is_in_its_error(lmzoo, words, value) -> None:
    code, _, err = lmzoo(*words)
    assert (code, err.count("\n"), f"got {value}" in err) == (2, 1, True), err
