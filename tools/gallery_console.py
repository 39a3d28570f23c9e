"""The console of a running sweep as SVG, drawn from the records of the sweep.

The picture shows the moment when 60 % of the confirm runs had ended. The console, the planner, the
verdicts and the estimate are those of a sweep; two workers have taken runs and train nothing.
"""

import io
import re
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from unittest import mock

from rich.console import Console as RichConsole
from rich.terminal_theme import TerminalTheme

from lmzoo.data.corpus import open_corpus
from lmzoo.lab.analysis.study_parquet import restore_study
from lmzoo.lab.store.records import CONFIG, STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study import Study
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Exchange
from lmzoo.lab.sweep.screen.console import Console
from lmzoo.trainables.resolve import corpus_config, resolve

WIDTH, HEIGHT = 80, 24
CELL = 12.2, 24.4
"""Width and height of a letter in rich's SVG."""
SHARE = 0.6
"""Share of the confirm runs that have ended."""
SECONDS = 44.0
"""Time since the start."""
LIGHT = TerminalTheme(
    (247, 249, 250), (29, 39, 49),
    [(29, 39, 49), (168, 48, 22), (24, 110, 60), (128, 84, 0), (31, 95, 160), (123, 60, 140), (0, 104, 120), (74, 88, 101)],
)  # fmt: skip
DARK = TerminalTheme(
    (23, 28, 34), (226, 232, 238),
    [(226, 232, 238), (240, 140, 110), (126, 200, 140), (230, 190, 110), (127, 184, 238), (205, 160, 220), (110, 205, 215), (160, 172, 184)],
)  # fmt: skip
FRAME = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 SIZE" role="img">
<title>The console of a running sweep</title>
<style>
text{{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:{char_height}px}}
{styles}
.frame{{fill:BACKGROUND}}
</style>
<defs>{lines}</defs>
<rect class="frame" width="100%" height="100%" rx="8"/>
<g transform="translate(8 6)">{backgrounds}
<g>{matrix}</g></g>
</svg>
"""


def picture(study: Study, records: Path) -> str:
    """Return the console of a study as SVG, in the colours of the reader's setting."""
    light, dark = (
        _svg(panel, theme) for panel in [_panel(study, records)] for theme in (LIGHT, DARK)
    )
    own = re.search(r"<style>\n(.*?)</style>", dark, re.DOTALL)
    assert own is not None
    rules = "\n".join(line for line in own[1].splitlines() if not line.startswith("text{"))
    return light.replace("</style>", f"@media (prefers-color-scheme: dark){{\n{rules}}}\n</style>")


def _panel(study: Study, records: Path) -> RichConsole:
    """Return a recorded screen with the console's table."""
    screen = RichConsole(
        file=io.StringIO(), record=True, width=WIDTH, height=HEIGHT, force_terminal=True,
        color_system="standard", legacy_windows=False,
    )  # fmt: skip
    fields = corpus_config(study, study.fields)
    corpus = open_corpus(fields, None)
    with tempfile.TemporaryDirectory() as folder:
        restore_study(records, Path(folder))
        _forget_runs(Path(folder))
        numerics = read_json(Path(folder, STUDY))["numerics"]
        with (
            mock.patch("lmzoo.lab.store.records.NUMERICS", numerics),
            mock.patch("lmzoo.train.run.NUMERICS", numerics),
            closing(StudyStore(Path(folder))) as store,
        ):
            planner = Planner(study, resolve(study, corpus, fields), store)
            with mock.patch("time.monotonic", return_value=SECONDS):
                console = Console(as_json=False, stderr=screen)
                console.start_time = 0.0
                console.fleet = fleet = Fleet(planner, Packer(corpus, None), [console])
                console.workers, console.devices = (lambda: 2), "2 CPU cores of this machine"
                _train(fleet)
                console._first = 0.0, 0.0  # the rate is that of the whole sweep
                screen.print(console.panel())
    return screen


def _forget_runs(folder: Path) -> None:
    """Remove the confirm runs that have not ended yet: the last seeds of all points."""
    configs = [read_json(path) for path in sorted(folder.glob(f"*/{CONFIG}"))]
    confirm = [config for config in configs if config and config["stage"] == "confirm"]
    seeds = sorted({config["seed"] for config in confirm})
    confirm.sort(key=lambda config: (seeds.index(config["seed"]), config["point"]["label"]))
    for config in confirm[round(SHARE * len(confirm)) :]:
        shutil.rmtree(folder / config["run"])


def _train(fleet: Fleet) -> None:
    """Let two workers take runs; an epoch takes as long as in the records, for each member."""
    records = [fleet.planner.store.run(run).records() for run in fleet.planner.store.known_runs]
    seconds = [r["seconds"] for own in records for r in own if r["event"] == "epoch"]
    for name in ("1", "2"):
        fleet.exchange(Exchange(name), live=2, now=0.0)
        worker = fleet.workers[name]
        members = len(worker.training)
        fleet.pace.add(worker.key, members, members * sum(seconds) / len(seconds))


def _svg(screen: RichConsole, theme: TerminalTheme) -> str:
    lines = screen.export_text(clear=False).count("\n")
    size = f"{WIDTH * CELL[0] + 16:g} {lines * CELL[1] + 12:g}"
    background = "#{:02x}{:02x}{:02x}".format(*theme.background_color)
    return screen.export_svg(
        theme=theme, clear=False, unique_id="console",
        code_format=FRAME.replace("BACKGROUND", background).replace("SIZE", size),
    )  # fmt: skip
