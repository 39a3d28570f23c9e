"""The command line, in this process."""

import sys

import pytest

from lmzoo.cli.main import COMMANDS, build_app
from lmzoo.command_line import run_app


@pytest.fixture
def lmzoo(monkeypatch, capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lmzoo", *arguments])
        with pytest.raises(SystemExit) as stop:
            run_app(build_app(list(COMMANDS)))
        out = capsys.readouterr()
        return stop.value.code, out.out, out.err

    return call
