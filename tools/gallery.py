"""Draw the pictures of docs/gallery.md from the records in docs/results/records.

    python tools/gallery.py            make results

The same records give the same files (`tests/docs/test_gallery.py`). A picture is an SVG that
follows the reader's setting, light or dark. Charts are those of `lmzoo figure`.
"""

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import gallery_console

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.report.figure import figures
from lmzoo.lab.analysis.report.forest import PICTURE, picture

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/assets/gallery"
WIDTH = 640
PADDING = {"left": 5, "top": 5, "bottom": 5, "right": 45}
"""The reader's font may be wider than the one that Vega measures."""
TITLES = {
    **{"orient": "top", "titleColor": "var(--fg)", "symbolBaseFillColor": "var(--muted)"},
    "layout": {"top": {"direction": "vertical", "anchor": "start"}},
}
CONFIG = PICTURE | {"legend": PICTURE["legend"] | TITLES}
STUDY, RECORDS = "gru_ablation", ROOT / "docs/results/records/gru_ablation-captions.parquet"


def main() -> None:
    """Write the pictures."""
    describe = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=describe).parse_args()
    FOLDER.mkdir(exist_ok=True)
    for path, text in pictures():
        path.write_text(text, encoding="utf-8")


def pictures() -> Iterator[tuple[Path, str]]:
    """Yield the path and the SVG of each picture."""
    charts = figures(load_study(RECORDS), study_ranking(RECORDS).frame)
    for name in ("curves", "tuning"):
        spec = charts[name] | {"width": WIDTH, "padding": PADDING}
        yield FOLDER / f"{name}.svg", picture(spec, CONFIG)
    sys.path.insert(0, str(ROOT))  # for `sweeps`
    study = importlib.import_module(f"sweeps.{STUDY}").STUDY
    yield FOLDER / "console.svg", gallery_console.picture(study, RECORDS)


if __name__ == "__main__":
    main()
