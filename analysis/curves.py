"""Draw the learning curves, the tuned settings and the costs of a study.

    python analysis/curves.py runs/gru_ablation-captions

The same as `lmzoo curves`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.tables import curves

if __name__ == "__main__":
    run_command(curves)
