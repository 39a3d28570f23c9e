"""The one exception that means: what you gave us is wrong, and here is what to do.

Command lines turn a `UserError` into one line on stderr and exit code 2. Anything
else that escapes is our own mistake and keeps its traceback.
"""


class UserError(ValueError):
    """Bad input; the message is one line with the offending value and the remedy."""
