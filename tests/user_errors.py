"""Assert that bad input raises a one-line `UserError`."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lmzoo.base.errors import UserError


@contextmanager
def raises_user_error(*parts: object) -> Iterator[None]:
    """Assert that the block raises a `UserError` of one line that contains all parts."""
    with pytest.raises(UserError) as caught:
        yield
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for part in parts:
        assert str(part) in message
