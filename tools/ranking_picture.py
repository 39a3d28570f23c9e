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


def pictures(figure: str, narrow: str) -> Iterator[tuple[Path, str]]:
    """Yield the path and the SVG of the pictures, light and dark.

    Args:
        figure: the SVG of the results page.
        narrow: the same for a phone.
    """
    for name, svg in (("ranking", figure), ("ranking-narrow", narrow)):
        yield ASSETS / f"{name}-light.svg", DARK.sub("", svg)
        yield ASSETS / f"{name}-dark.svg", DARK.sub(r"\1", svg)
