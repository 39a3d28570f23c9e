"""Show the loss of each point against the number of its tuning runs.

    python analysis/tuning.py runs/gru_ablation-captions

The same as `lmzoo tuning`; `--help` lists the options.
"""

from lmzoo.cli.tables import tuning
from lmzoo.command_line import run_command

if __name__ == "__main__":
    run_command(tuning)
