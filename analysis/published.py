"""Show the published tables of S0 next to our runs of their rows.

    python analysis/published.py runs/*

The same as `lmzoo published`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.tables import published

if __name__ == "__main__":
    run_command(published)
