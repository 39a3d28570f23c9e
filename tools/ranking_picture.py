"""Draw the ranking of a study as the README and the start page show it, for light and dark screens.

make sweep
python tools/ranking_picture.py runs/gru_ablation-captions
"""

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

ASSETS = Path(__file__).parents[1] / "docs/assets"
THEMES: dict[str, TerminalTheme] = {"light": DEFAULT_TERMINAL_THEME, "dark": DIMMED_MONOKAI}


def main(study: str) -> None:
    """Write `ranking-light.svg` and `ranking-dark.svg`."""
    command = [sys.executable, "-m", "lmzoo", "rank", study]
    done = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    table = done.stdout.split("\nhow each setting was found", maxsplit=1)[0].rstrip()
    for name, theme in THEMES.items():
        console = Console(record=True, width=100, file=io.StringIO())
        console.print(Text("$ lmzoo rank " + study + "\n" + table))
        svg = console.export_svg(title="lmzoo", theme=theme)
        svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # loads nothing
        (ASSETS / f"ranking-{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
