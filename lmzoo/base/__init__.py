"""The ground of both houses: configs, errors, named parts, search spaces, command lines.

In comes what a user types; out come validated configs, or a `UserError` of one line.
Read `config.py` and `registry.py` first. Nothing here imports torch.
"""
