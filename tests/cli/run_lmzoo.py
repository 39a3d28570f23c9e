"""Run the command `lmzoo` in this process."""

import sys

import pytest

from lmzoo.cli.main import main


def run_lmzoo(*arguments: object) -> int:
    """Run `lmzoo` with these arguments and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lmzoo", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return int(str(stop.value.code))
