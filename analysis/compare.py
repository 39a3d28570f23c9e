"""Compare every point with one reference, over seeds and test sequences.

    python analysis/compare.py runs/gru_ablation-captions

The same as `lmzoo compare`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.tables import compare

if __name__ == "__main__":
    run_command(compare)
