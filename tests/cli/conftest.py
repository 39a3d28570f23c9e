from collections.abc import Callable

import pytest

from tests.cli.run_lmzoo import run_lmzoo

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lmzoo(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `lmzoo` in this process and return its exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_lmzoo(*arguments)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


@pytest.fixture
def printed(lmzoo: Call) -> Callable[..., str]:
    """Run `lmzoo` without an error and return its stdout."""

    def call(*arguments: object) -> str:
        code, out, err = lmzoo(*arguments)
        assert code == 0, (arguments, err)
        assert "error" not in err
        return out

    return call


@pytest.fixture
def refused(lmzoo: Call) -> Callable[..., str]:
    """Run `lmzoo` with bad input and return the one line of its error."""

    def call(*arguments: object) -> str:
        code, out, err = lmzoo(*arguments)
        assert (code, out, err.count("error: ")) == (2, "", 1), (arguments, err)
        line = err.splitlines()[-1]
        assert line.startswith("error: "), err
        return line

    return call
