"""Estimate the importance of the searched fields (fANOVA).

    python analysis/importance.py runs/gru_ablation-captions

The same as `lmzoo importance`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.tables import importance

if __name__ == "__main__":
    run_command(importance)
