"""Estimate the effect of every switch of a cell and the interaction of every pair.

    python analysis/epistasis.py runs/gru_factorial-captions

The same as `lmzoo epistasis`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.tables import epistasis

if __name__ == "__main__":
    run_command(epistasis)
