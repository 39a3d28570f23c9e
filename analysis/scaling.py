"""Fit the loss of each architecture against its size.

    python analysis/scaling.py runs/embedding_size-captions --by state

The same as `lmzoo scaling`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.tables import scaling

if __name__ == "__main__":
    run_command(scaling)
