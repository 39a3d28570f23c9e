"""Show the loss of each point against the number of its tuning runs.

    python analysis/tuning.py runs/gru_ablation-captions

The same as `lmzoo tuning`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.tables import tuning

if __name__ == "__main__":
    run_command(tuning)
