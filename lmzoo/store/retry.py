"""Writing to a store that cannot be written for a while: again, with growing pauses.

A disk that is full, a folder that has turned read-only and a server that does not answer
mostly come back. Whoever writes waits for them, says so in the log, and after `PATIENCE`
gives up with one line. Standard library only.
"""

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from lmzoo.errors import UserError

Value = TypeVar("Value")

PATIENCE = 60.0
"""Seconds to keep trying."""
LONGEST = 8.0
"""Seconds between two tries, at most."""
PASSING = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOTCONN,
}  # fmt: skip
"""What a store may recover from; any other error ends the waiting at once."""
LOG = logging.getLogger("lmzoo.store")


def retry(action: Callable[[], Value], what: str) -> Value:
    """The value of `action()`, which is repeated while the store is away.

    Args:
        action: what to do; done again from the start, so a part of it must not count.
        what: the file, for the log and the error.

    Raises:
        UserError: it still failed after `PATIENCE` seconds, or for a reason that does not pass.
        FileExistsError, FileNotFoundError: answers, not failures.
    """
    deadline, pause = time.monotonic() + PATIENCE, 0.25
    while True:
        try:
            return action()
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError as error:
            if error.errno not in PASSING:
                why = error.strerror or str(error)
                raise UserError(f"{what}: {why}; mend that, or give another store") from error
            left = deadline - time.monotonic()
            if left <= 0:
                raise UserError(
                    f"{what}: {error.strerror}, for {PATIENCE:.0f} s; nothing that was written "
                    "before is lost: mend that and run the same command again"
                ) from error
            LOG.warning("%s: %s; trying for another %.0f s", what, error.strerror, left)
            time.sleep(max(0.0, min(pause, LONGEST, left)))
            pause *= 2
