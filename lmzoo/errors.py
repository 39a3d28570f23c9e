"""The exception for invalid user input.

The command line prints a `UserError` as one line on stderr and exits with code 2. Every other
exception is a bug in lmzoo and keeps its traceback.
"""

import traceback
from pathlib import Path


class UserError(ValueError):
    """Invalid input. The message is one line: what is wrong, the value, and what to do."""


def describe_error(error: BaseException) -> str:
    """Return an exception as one line: "ValueError: no such gate (mingru.py, line 31)"."""
    message = str(error).strip().partition("\n")[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{where}"
