"""Estimate the effect of every switch of a cell and the interaction of every pair.

    python analysis/epistasis.py runs/gru_factorial-captions

The same as `lmzoo epistasis`; `--help` lists the options.
"""

from lmzoo.cli.tables import epistasis
from lmzoo.command_line import run_command

if __name__ == "__main__":
    run_command(epistasis)
