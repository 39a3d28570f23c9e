"""The subcommands of `lmzoo`, one file each, apart from `list` and `describe` in catalogue.py.

In come the words of a command line; out come lines, JSON and an exit code.
Read `main.py` first: `lmzoo NAME` imports only the module of that subcommand (`commands.toml`), so
table commands do not import torch.
"""
