"""The exception for invalid user input.

The command line prints a `UserError` as one line on stderr and exits with code 2. Every other
exception is a bug in lmzoo and keeps its traceback.
"""


class UserError(ValueError):
    """Invalid input. The message is one line: what is wrong, the value, and what to do."""
