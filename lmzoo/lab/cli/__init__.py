"""The subcommands of `lmzoo` that need no model, one file each.

In come arguments and folders of runs; out come text, JSON or a page, and an exit code.
Read `tables.py` first.
"""
