"""Bad input is refused by exactly one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lmzoo.errors import UserError


@contextmanager
def refused(*said: object) -> Iterator[None]:
    """The block raises a `UserError` of one line that says all of these."""
    with pytest.raises(UserError) as caught:
        yield
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for part in said:
        assert re.search(re.escape(str(part)), message), f"{part!r} is not in {message!r}"
