"""The ablation of a paper next to ours: differences to the complete cell, in nats per token.

    <!-- table: ablation records/modern_gla-captions.parquet -->

`published_ablations.csv` has the perplexities of the papers, one run each. A difference is the
logarithm of the ratio of two perplexities. Two of them agree if the verdict of ours has the sign of
theirs; they disagree if it has the other one.
"""

import csv
import math
from pathlib import Path

from lmzoo.lab.analysis.formatting import format_mean
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.render import Report, TextTable

TABLE = Path(__file__).with_suffix(".csv")
SIGNS = {1: "agrees", -1: "disagrees", 0: "undecided"}


def ablation_report(path: Path) -> Report:
    """Return the cuts of a study's cell that its paper made, in the order of their published cost."""
    folder = load_study(path)
    frame = rank_points(folder.runs, folder.events, folder.study)
    ours = {row["label"]: row for row in frame.to_dicts()}
    with TABLE.open(newline="") as file:
        published = {
            row["label"]: float(row["perplexity"])
            for row in csv.DictReader(file)
            if row["study"] == folder.study["name"]
        }
    [home] = [row["label"] for row in ours.values() if row["reference"]]
    rows = []
    for label, perplexity in published.items():
        if label == home or label not in ours:
            continue
        cost = math.log(perplexity / published[home])
        row = ours[label]
        agrees = SIGNS[int(row["sign"] * math.copysign(1, cost))]
        difference = format_mean(
            *(row[x] for x in ("difference", "difference_low", "difference_high")), form="+.3f"
        )
        rows.append((label, f"{perplexity:.2f}", f"{cost:+.3f}", difference, agrees))
    header = ("cut", "perplexity in the paper", "difference there", "difference here", "sign")
    title = f"the paper's ablation: {home} has a perplexity of {published[home]:.2f}"
    return Report((), (TextTable(title, header, rows, frozenset({"cut", "sign"})),), (), frame)
