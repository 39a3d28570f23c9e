"""Draw the pictures of docs/gallery.md from the records in docs/results/records.

    python tools/gallery.py            make results

The same records give the same files (`tests/docs/test_gallery.py`). A picture is an SVG that
follows the reader's setting, light or dark. The forest plot is that of the results pages.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import gallery_charts
import gallery_console

from lmzoo.lab.analysis.curve_data import learning_curves, tuned_settings
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/assets/gallery"
STUDY, RECORDS = "gru_ablation", ROOT / "docs/results/records/gru_ablation-captions.parquet"


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in pictures():
        path.write_text(text, encoding="utf-8")


def pictures() -> Iterator[tuple[Path, str]]:
    """Yield the path and the SVG of each picture."""
    folder = load_study(RECORDS)
    ranking = rank_points(folder.runs, folder.events, folder.study)
    floor = ranking["floor"].item(0)
    groups = {row["label"]: _group(row) for row in ranking.to_dicts()}
    yield FOLDER / "curves.svg", gallery_charts.curves(learning_curves(folder), groups, floor)
    tried = tuned_settings(folder, "recipe.lr")
    yield FOLDER / "settings.svg", gallery_charts.settings(tried, groups, floor)
    sys.path.insert(0, str(ROOT))  # for `sweeps`
    study = importlib.import_module(f"sweeps.{STUDY}").STUDY
    yield FOLDER / "console.svg", gallery_console.picture(study, RECORDS)


def _group(row: dict[str, object]) -> str:
    return "reference" if row["reference"] else str(row["verdict"] or "baseline")


if __name__ == "__main__":
    main()
