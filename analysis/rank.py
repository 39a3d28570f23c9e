"""Rank the points of a study by test loss.

    python analysis/rank.py runs/gru_ablation-captions

The same as `lmzoo rank`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.tables import rank

if __name__ == "__main__":
    run_command(rank)
