"""Run the command `lmzoo` in this process."""

import sys

import pytest

from lmzoo.cli.main import main


def run_lmzoo(*arguments: object) -> int:
    """Run `lmzoo` with these arguments, some of them in lists, and return its exit code."""
    words = ["lmzoo"]
    for argument in arguments:
        if isinstance(argument, list | tuple):
            words += map(str, argument)
        else:
            words.append(str(argument))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            main()
    return int(str(stop.value.code))
