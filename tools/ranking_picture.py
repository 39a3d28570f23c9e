"""The figure of the README and the start page: the ranking of `make sweep`, for light and dark pages.

`tools/results.py` writes both files from the records in `docs/results/records`. The figures of the
results pages follow the reader's setting by themselves; a README chooses one of two files.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ASSETS = Path(__file__).parents[1] / "docs/assets"
FIGURE = "ablations-captions-forest.svg"
DARK = re.compile(r"@media \(prefers-color-scheme: dark\)\{(.*?\})\}", re.DOTALL)


def pictures(figure: str) -> Iterator[tuple[Path, str]]:
    """Yield the path and the SVG of both pictures.

    Args:
        figure: the SVG of the results page.
    """
    yield ASSETS / "ranking-light.svg", DARK.sub("", figure)
    yield ASSETS / "ranking-dark.svg", DARK.sub(r"\1", figure)
