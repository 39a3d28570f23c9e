"""Retries store operations that fail for a passing reason.

A full disk, a read-only folder and a server that does not answer often recover. An operation is
repeated with growing pauses, and every failure is logged. After `RETRY_SECONDS` it fails with a
`UserError`. Standard library only.
"""

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from lmzoo.base.errors import UserError

Value = TypeVar("Value")

RETRY_SECONDS = 60.0
"""Time after which an operation is given up, in seconds."""
MAX_PAUSE = 8.0
"""Longest pause between two attempts, in seconds."""
TRANSIENT_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOTCONN,
}  # fmt: skip
"""Error numbers that are retried. Any other error is raised at once."""
LOG = logging.getLogger("lmzoo.lab.store")


def retry(action: Callable[[], Value], target: str) -> Value:
    """Call `action` until it succeeds and return its value.

    Args:
        action: The operation. It must be safe to repeat after it failed halfway.
        target: The file or folder, for the log and the error message.

    Raises:
        UserError: It still failed after `RETRY_SECONDS`, or the error is not transient.
        FileExistsError, FileNotFoundError: Raised unchanged, since they are answers, not failures.
    """
    deadline, pause = time.monotonic() + RETRY_SECONDS, 0.25
    while True:
        try:
            return action()
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError as error:
            if error.errno not in TRANSIENT_ERRORS:
                reason = error.strerror or str(error)
                raise UserError(f"{target}: {reason}; fix this or choose another store") from error
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise UserError(
                    f"{target}: {error.strerror}, still after {RETRY_SECONDS:.0f} s; no written "
                    "record is lost: fix this and run the same command again"
                ) from error
            LOG.warning("%s: %s; retrying for %.0f s more", target, error.strerror, remaining)
            time.sleep(max(0.0, min(pause, MAX_PAUSE, remaining)))
            pause *= 2
