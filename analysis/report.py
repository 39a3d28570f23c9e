"""Write a study on one HTML page that opens without a network.

    python analysis/report.py runs/gru_ablation-captions

The same as `lmzoo report`; `--help` lists the options.
"""

from lmzoo.cli.report import report
from lmzoo.command_line import run_command

if __name__ == "__main__":
    run_command(report)
