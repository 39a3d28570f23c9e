"""The command line, in this process."""

import sys

import pytest

from lmzoo.__main__ import app
from lmzoo.edge import run


@pytest.fixture
def lmzoo(monkeypatch, capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lmzoo", *arguments])
        with pytest.raises(SystemExit) as stop:
            run(app)
        out = capsys.readouterr()
        return stop.value.code, out.out, out.err

    return call
