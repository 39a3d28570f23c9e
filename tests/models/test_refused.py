"""Fields of a row that do not fit are refused."""

import pytest

from lmzoo.base.errors import UserError
from tests.cases import cases
from tests.tiny import tiny


@cases("models/cases.toml", "refused", "row, fields, words")
def test_fields_that_do_not_fit_are_refused(row, fields, words):
    with pytest.raises(UserError, match=words):
        tiny(row, **fields)
