"""An error of the user's code names its place there, not where this package noticed it."""

import pytest

from lmzoo.base.errors import UserError, describe_error, described_output, user_path


def test_the_place_is_the_last_one_in_the_users_code():
    def mine():
        return user_path("a\0b")

    with pytest.raises(UserError) as caught:
        mine()
    line = mine.__code__.co_firstlineno + 1
    assert describe_error(caught.value).endswith(f"(test_errors.py, line {line})")


def test_a_programs_output_names_the_place_of_its_traceback():
    lines = ['  File "/home/me/t.py", line 3, in <module>', '  File "<frozen os>", line 1, in x']
    assert described_output([*lines, "RuntimeError: boom"]) == "RuntimeError: boom (t.py, line 3)"
    assert described_output(["no such file"]) == "no such file"
    assert described_output([]) == "it printed nothing"
