"""Write a study on one HTML page that opens without a network.

    python analysis/report.py runs/gru_ablation-captions

The same as `lmzoo report`; `--help` lists the options.
"""

from lmzoo.base.command_line import run_command
from lmzoo.lab.cli.report import report

if __name__ == "__main__":
    run_command(report)
