"""A progress bar is shown for a long text on a terminal, and never elsewhere."""

import io

import pytest

from lmzoo.data import assemble as progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("steps", "shown"), [(19, ""), (30, "encoding the text")])
def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, steps: int, shown: str) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert list(progress.track(range(steps))) == list(range(steps))
    assert shown in terminal.getvalue()
    assert bool(terminal.getvalue()) == bool(shown)


def test_no_bar_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.track(range(100))) == list(range(100))
    assert capsys.readouterr() == ("", "")
