"""The ground of both houses: configs, errors, named parts, search spaces, command lines."""

import sys
from typing import Any


def say_stopped(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print an interrupt that nothing catches as one line, not as a traceback of imports."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("stopped\n")
    else:
        HOOK(kind, error, trace)


HOOK, sys.excepthook = sys.excepthook, say_stopped
"""What Python calls for an error that nothing catches; it is set again after `import lmzoo`."""
