"""The subcommands of `lmzoo`, one file each, apart from `list` and `describe` in catalogue.py.

`lmzoo NAME` imports only the module of that subcommand, so table commands do not import torch.
"""
