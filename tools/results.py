"""Fill the tables and figures of the results pages from the records in `docs/results/records`.

    python tools/results.py            make results
    python tools/results.py --check    make check: fails where a page differs from its records

A page holds blocks. What stands between the two comments is generated, the rest is written by hand:

    <!-- table: rank records/gru_ablation-captions.parquet --metric token --part tables -->
    <!-- end -->

The command is one of `COMMANDS`; its options are those of the library's function. `--part` selects
heading, tables or legend of the report. A line below a table says of which commits the runs are, if
they are mixed; new records of this kind are refused. The forest plot above a table is that of the report.
"""

import argparse
import functools
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import ranking_picture
import scaling_picture
from answers import per_width, places, two_optimisers
from atlas import FILE, atlas, atlas_report, ranking, width_report
from map_overview import overview_picture, overview_report, recorded
from map_table import map_picture, map_report, prediction_report
from published_ablations import ablation_report
from published_table import published_comparison
from rates import rate_report
from scaling_fits import study_scaling

from lmzoo.lab.analysis.environments import commits_line
from lmzoo.lab.analysis.load import distinct_ranges, load_study
from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.render import Report, TextTable, render
from lmzoo.lab.analysis.report.forest import forest_picture
from lmzoo.lab.analysis.study_parquet import SUFFIX
from lmzoo.lab.statistics.compared import MARGIN
from lmzoo.shrinking import walk_report

PAGES = Path(__file__).parents[1] / "docs/results"
MIXED = Path(__file__).with_name("mixed_records.txt")
"""Records of several commits that will be trained again."""
FIRST_PAGES = tuple(PAGES.parents[1] / name for name in ("README.md", "docs/index.md"))
"""They show the answer of `make sweep`."""
BLOCK = re.compile(r"(<!-- table: (?P<command>.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"\]\((?P<name>[\w-]+-forest\.svg)\)\n\n<!-- table: (?P<command>rank .*?) -->")
"""A forest plot stands above the block of its table."""
LABEL = re.compile(r'(aria-label="[^"]*")')
CLIP = re.compile(r"clip\d+")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
COMMANDS: dict[str, Callable[..., Report]] = {
    "answer": lambda path: Report((_answer(path),), (), (), pl.DataFrame()),
    "rank": ranking,
    "scaling": study_scaling,
    "ablation": ablation_report,
    "rates": rate_report,
    "places": places,
    "per_width": per_width,
    "two_optimisers": two_optimisers,
    "atlas": atlas_report,
    "widths": width_report,
    "map": map_report,
    "overview": lambda *paths: overview_report(recorded(paths)),
    "prediction": prediction_report,
    "walk": lambda path, row, margin=MARGIN: walk_report(_walk(path), row, float(margin)),
    "caveats": lambda *paths: _caveats(paths),
    "published": lambda *paths, **options: published_comparison(paths, **options),
}
PARTS: dict[str, dict[str, Any]] = {
    "heading": {"question": "", "answer": "", "warnings": (), "heading": ()},
    "tables": {"tables": ()},
    "legend": {"legend": (), "account": {}},
}
"""Part of a report -> its fields, empty."""
FOLDED = (
    "how each setting was found",
    "why they differ",
    "columns of",
    "how sure each study",
    "rank correlation by",
)
"""First words of the titles of tables that a page folds."""
FEW = 3
"""Studies that say one by one how sure they are."""
DOUBTS = {
    "the curves still fall": "The curves still fall",
    "a model of counts beats a trained one": "a model of counts",
    "nothing was searched": "nothing searched",
}
"""What makes studies doubtful -> the words of its caveat."""


def main() -> None:
    """Write the files that differ, or name them and fail."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="Change nothing; fail if a file differs."
    )
    check = parser.parse_args().check
    check_commits(PAGES / "records")
    stale = [(path, text) for path, text in generated(PAGES) if not _equal(path, text)]
    frame, file = atlas(PAGES / "records"), PAGES / FILE
    is_stale = not file.exists() or not pl.read_parquet(file).equals(frame)
    if check and (stale or is_stale):
        names = ", ".join([path.name for path, _ in stale] + [FILE] * is_stale)
        sys.exit(f"error: {names}: not what the records give; run `make results`")
    for path, text in stale:
        path.write_text(text, encoding="utf-8")
    if is_stale:
        frame.write_parquet(file, compression="zstd")


def _equal(path: Path, text: str) -> bool:
    """Return whether a file has this text; of a picture, what its labels say.

    Fonts and processors move what is drawn by up to two pixels, and labels in their last digits.
    """
    old = _read(path)
    if path.suffix != ".svg" or old is None:
        return old == text
    old, text = (CLIP.sub("clip", own) for own in (old, text))  # counted in each process
    if NUMBER.sub("0", old) != NUMBER.sub("0", text):
        return False
    pairs = zip(LABEL.split(old), LABEL.split(text), strict=True)
    return all(
        math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-9 if place % 2 else 2.0)
        for place, parts in enumerate(pairs)  # every second part is a label
        for a, b in zip(*map(NUMBER.findall, parts), strict=True)
    )


def generated(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each page with its blocks filled, each figure of a page, and those of the first pages."""
    for page in (*sorted(folder.glob("*.md")), *FIRST_PAGES):
        text = fill(page.read_text(encoding="utf-8"), folder)
        yield page, text
        for block in BLOCK.finditer(text):
            words = block["command"].split()
            if words[0] == "scaling" and "--by" not in words:
                yield folder / "scaling.svg", scaling_picture.draw(folder / words[1])
            if words[0] == "overview":
                studies = (folder / name for name in words[1:])
                yield folder / f"{page.stem}.svg", overview_picture(recorded(studies))
            if words[0] == "map":
                study, ablations = (folder / name for name in words[1:])
                yield folder / f"map-{study.stem}.svg", map_picture(study, ablations)
        for asked in FIGURE.finditer(text):
            _, paths, options = _parsed(asked["command"])
            options.pop("part", None)
            frame = ranking(*(folder / path for path in paths), **options).frame
            part = frame.partition_by(TABLE_KEYS, maintain_order=True)[0]
            figure = forest_picture(part)
            yield folder / asked["name"], figure
            if asked["name"] == ranking_picture.FIGURE:
                yield from ranking_picture.pictures(figure, forest_picture(part, narrow=True))


def _answer(records: Path) -> str:
    """Return the question of a study and the answer in one sentence."""
    report = ranking(records)
    return f"{report.question} {report.answer}"


def _walk(path: Path) -> pl.DataFrame:
    # Walks before the rule of new seeds have no repetition.
    return pl.read_csv(path, schema_overrides={"repeated": pl.Boolean})


def _caveats(paths: Sequence[Path]) -> Report:
    """Return how sure studies are: seeds, what was searched, the baseline, and what is doubtful.

    Of more than `FEW` studies a page says it together, so that its answer is in sight.
    """
    alike: dict[Sure, list[str]] = {}
    for path in paths:
        alike.setdefault(_how_sure(path), []).append(path.stem.replace("_", " "))
    rows = [(", ".join(names), sure.text) for sure, names in alike.items()]
    if len(rows) <= FEW:
        return Report(tuple(": ".join(row) for row in rows), (), (), pl.DataFrame())
    header = ("study", "how sure")
    table = TextTable("how sure each study is", header, rows, frozenset(header))
    doubtful = []
    for doubt, words in DOUBTS.items():
        number = sum(len(names) for sure, names in alike.items() if words in sure.text)
        if number:
            doubtful.append(f"{number} {doubt}")
    seeds = _range(sorted(number for sure in alike for number in sure.seeds))
    told = [f"{len(paths)} studies of {seeds} a point."]
    if doubtful:
        told.append(f"In {', in '.join(doubtful)}.")
    for sure, names in alike.items():
        told += [f"{', '.join(names)}: {text}" for text in sure.others]
    return Report((" ".join(told),), (table,), (), pl.DataFrame())


class Sure(NamedTuple):
    """How sure a study is."""

    seeds: tuple[int, ...]
    text: str
    others: tuple[str, ...]
    """Grave doubts that `DOUBTS` does not count: they are never folded."""


def _how_sure(records: Path) -> Sure:
    study, report = load_study(records), ranking(records)
    frame = report.frame
    trained = frame.filter(pl.col("parameters").is_null() | (pl.col("parameters") > 0))
    seeds = sorted(set(trained["runs"].drop_nulls()))
    fields = " and ".join(distinct_ranges(study.study))
    tried = min(trained["tune"].drop_nulls(), default=0)
    searched = tried > 1 and fields
    how = f"{fields} searched in {tried} settings or more" if searched else "nothing searched"
    counted = set(trained["kn5"].drop_nulls())
    wins = ", and all models beat the Kneser-Ney 5-gram" * (counted == {"wins"})
    doubts = report.warnings[: report.grave]
    others = [doubt for doubt in doubts if not any(words in doubt for words in DOUBTS.values())]
    text = f"{_range(seeds)}, {how}{wins}. {' '.join(doubts)}".strip()
    return Sure(tuple(seeds), text, tuple(others))


def _range(seeds: Sequence[int]) -> str:
    """Return numbers of seeds in words, from the least to the most."""
    if seeds[0] != seeds[-1]:
        return f"{seeds[0]} to {seeds[-1]} seeds"
    if seeds[0] == 1:
        return "1 seed"
    return f"{seeds[0]} seeds"


def fill(page: str, folder: Path) -> str:
    """Return a page with all blocks generated; paths in blocks are relative to the folder."""
    return BLOCK.sub(
        lambda block: f"{block[1]}\n{_block(block['command'], folder)}\n\n{block[3]}", page
    )


def _block(text: str, folder: Path) -> str:
    """Return the Markdown of a block."""
    name, paths, options = _parsed(text)
    part = options.pop("part", None)
    report = COMMANDS[name](*(folder / path for path in paths), **options)
    if part is not None:
        for other, fields in PARTS.items():
            report = report if other == part else replace(report, **fields)
    lines = [line for path in paths if (line := _commits(folder / path))]
    # A page says the commits where the numbers stand.
    is_table = part in (None, "tables") and report.tables and name != "caveats"
    return "\n\n".join([_folded(report), *(["; ".join(lines)] if lines and is_table else [])])


@functools.cache
def _commits(path: Path) -> str:
    """Return of which commits the runs of a record are, if they are mixed or had changes."""
    line = commits_line(load_study(path).runs.collect()) if path.suffix == SUFFIX else ""
    return line and f"`{path.stem}`: {line}"


def check_commits(folder: Path) -> None:
    """Refuse records of several commits, or of a tree with changes, that `MIXED` does not list."""
    known = {x for x in MIXED.read_text("utf-8").splitlines() if not x.startswith("#")}
    found = {path.stem for path in folder.glob(f"*{SUFFIX}") if _commits(path)}
    if new := sorted(found - known):
        names = ", ".join(new)
        sys.exit(
            f"error: {names}: runs of several commits, or of a tree with changes; train them at one clean commit"
        )
    if old := sorted(known - found):
        sys.exit(f"error: {', '.join(old)}: remove it from {MIXED.name}, it is of one commit now")


def _parsed(text: str) -> tuple[str, list[str], dict[str, Any]]:
    """Return the command of a block, its paths and its options."""
    name, *arguments = shlex.split(text)
    split = next((i for i, word in enumerate(arguments) if word.startswith("--")), len(arguments))
    words = arguments[split:]
    options = {
        key.removeprefix("--"): int(value) if value.isdecimal() else value
        for key, value in zip(words[::2], words[1::2], strict=True)
    }
    return name, arguments[:split], options


def _folded(report: Report) -> str:
    """Return the report as Markdown; tables of details are folded."""
    # A page would differ at each commit if it named the version.
    report = replace(report, next_command="", says_version=False)
    parts = [render(replace(report, **PARTS["tables"], **PARTS["legend"]), "md")]
    for table in report.tables:
        text = _table(report, table)
        if table.title.startswith(FOLDED):
            title, _, rows = text.partition("\n\n")
            summary = f"<summary>{title.strip('*').capitalize()}</summary>"
            text = f'<details markdown="1">{summary}\n\n{rows}\n\n</details>'
        parts.append(text)
    parts.append(render(Report((), (), report.legend, report.frame), "md"))
    return "\n\n".join(filter(None, parts))


def _table(report: Report, table: TextTable) -> str:
    return render(Report((), (table,), (), report.frame), "md")


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main()
