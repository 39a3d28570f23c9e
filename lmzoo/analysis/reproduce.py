"""The commands that make a study and its page again, from what its folder says of itself.

`study.json` keeps what was asked: options and the file's own values alike, so that giving
them all asks the same. What an older version wrote keeps less; the rest is told from its
runs, as far as these show it, and what they do not show is said.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.analysis.load import Folder
from lmzoo.analysis.output_path import address
from lmzoo.analysis.search_ranges import Range, ranges
from lmzoo.store.records import CONFIG, read_json

OLD = (
    "# an older version wrote this study: its --seed, --parameters and options that set model or",
    "# recipe fields are not noted; each run's config.json holds what came of them",
)


def reproduce(path: Path, folder: Folder) -> str:
    """Shell lines: the sweep with all that was asked, then the table and this page."""
    study = folder.study
    configs = [
        config
        for run in folder.runs.select("run").collect()["run"]
        if (config := read_json(folder.path / run / CONFIG))
    ]
    words = ["python", f"sweeps/{study['name']}.py", "--storage", address(path.parent)]
    for name in ("epochs", "samples", "seeds"):
        words += [f"--{name}", str(study["budget"][name])]
    asked = study.get("asked")
    words += _guessed(folder, configs) if asked is None else _asked(asked)
    chosen = [point["label"] for point in study["points"] if point["id"] in study["chosen"]]
    if len(chosen) < len(study["points"]) or study.get("left_out"):
        words += ["--points", ",".join(chosen)]
    place = address(path)
    out = ["--out", "report.html"] if place.startswith("s3:") else []  # a bucket takes no page
    lines = [words, ["python", "lmzoo/cli/rank.py", place]]
    lines.append(["python", "lmzoo/cli/report.py", place, *out])
    made = next((config.get("environment") for config in configs), None) or {}
    versions = ", ".join(f"{name} {value}" for name, value in sorted(made.items()))
    note = [f"# made with {versions}"] if versions else []
    return "\n".join([*map(shlex.join, lines), *note, *(OLD if asked is None else ())])


def _asked(asked: Mapping[str, Any]) -> Iterator[str]:
    """All options that decide a study, but for its budget."""
    for name in ("corpus", "recipe", "seed", "parameters"):
        yield from (f"--{name}", str(asked[name]))
    for field, value in asked["fields"].items():
        yield from ("--set", f"{field}={_text(value)}")
    for field, where in asked["search"].items():
        if where is not None:  # it is not the range beside the field's default
            yield from ("--search-space", f"{field}={_space(where)}")
    for field in asked["off"]:
        yield from ("--search-space", f"{field}=off")


def _guessed(folder: Folder, configs: list[dict[str, Any]]) -> Iterator[str]:
    """What the runs of an older study show of its options."""
    corpora = [config["corpus"] for config in configs]
    if corpora and all(corpus == corpora[0] for corpus in corpora):
        yield from ("--corpus", corpora[0]["name"])
        for name, value in corpora[0].items():
            if name != "name" and value is not None:
                yield from ("--set", f"corpus.{name}={_text(value)}")
    if configs and all(config["recipe"].get("accumulate") == "epoch" for config in configs):
        yield from ("--recipe", "published")
    settings = (
        folder.runs.filter(pl.col("stage") == "tune").select("point", "setting").unique("point")
    )
    tuned = [json.loads(setting) for _, setting in settings.collect().iter_rows()]
    points = Counter(field for setting in tuned for field in setting)
    for field, where in ranges(folder.study).items():
        if 2 * points[field] > len(tuned):  # what few points search is their own
            yield from ("--search-space", f"{field}={_space(where)}")


def _text(value: Any) -> str:
    """A value as `--set` reads it: JSON, or a text that could not be JSON."""
    if isinstance(value, str) and value.lower() != "none":
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value)


def _space(where: Range) -> str:
    if "values" in where:
        return ",".join(map(str, where["values"]))
    return f"{where['low']!r}:{where['high']!r}" + (":log" if where.get("log") else "")
