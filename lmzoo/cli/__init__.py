"""The subcommands of `lmzoo`, one file each.

`lmzoo NAME` imports the file of that subcommand only, so a table does not wait for torch.
"""
