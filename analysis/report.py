"""Write the page of a study, and its runs as CSV.

    python analysis/report.py gru_ablation --out gru.html

The page is that of `lmzoo report`: charts, tables and verdicts in one HTML file. The CSV has one
row a run, for other programs.
"""

from pathlib import Path

import lmzoo
from lmzoo.base.command_line import run_command
from lmzoo.lab.analysis.report import render_report


def main(study: str, out: Path = Path("report.html")) -> None:
    """Write the page of a study to OUT, and its runs to a CSV file with the same name."""
    runs = lmzoo.runs(study)
    runs.write_csv(out.with_suffix(".csv"))
    out.write_text(render_report(study), encoding="utf-8")
    print(f"{out}, {out.with_suffix('.csv')}: {runs.height} runs")


if __name__ == "__main__":
    run_command(main)
