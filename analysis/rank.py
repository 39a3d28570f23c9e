"""Rank the points of a study by test loss.

    python analysis/rank.py runs/gru_ablation-captions

The same as `lmzoo rank`; `--help` lists the options.
"""

from lmzoo.cli.tables import rank
from lmzoo.command_line import run_command

if __name__ == "__main__":
    run_command(rank)
