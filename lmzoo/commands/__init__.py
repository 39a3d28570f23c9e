"""The subcommands of `python -m lmzoo`, one per file."""
