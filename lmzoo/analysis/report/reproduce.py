"""The commands that run a study again and make its ranking and its page.

`study.json` stores the options of the sweep, those of the command line and those of the script
alike, so giving all of them runs the same study. A study of an older version stores some of them,
the oldest ones none. The others are inferred from its runs as far as possible, and a comment lists
what is missing.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.analysis.records.load import StudyFolder
from lmzoo.analysis.records.search_ranges import search_ranges
from lmzoo.analysis.records.study_parquet import SUFFIX
from lmzoo.analysis.text.render import store_address
from lmzoo.command_line import setting_text
from lmzoo.search_space import range_text
from lmzoo.store.records import CONFIG, read_json

OLD_STUDY_NOTE = (
    "# An older version wrote this study: --seed, --parameters and options that set model or",
    "# recipe fields are not stored; each run's config.json has the resulting values.",
)

CHANGED = "; + after a commit: the clone had changes that were not committed"


def reproduce_commands(path: Path, folder: StudyFolder) -> str:
    """Return shell lines: the sweep with all its options, then the ranking and the page."""
    study = folder.study
    if str(path).endswith(SUFFIX):  # the sweep runs into the default store
        path = Path("runs") / path.stem
    configs = [
        config
        for run in folder.runs.select("run").collect()["run"]
        if (config := read_json(folder.path / run / CONFIG))
    ]
    script = study.get("script") or ["python", f"sweeps/{study['name']}.py"]
    sweep = [*script, "--storage", store_address(path.parent)]
    sweep += study.get("options") or _older_options(folder, configs)
    chosen = [
        point["stored_labels"][0] for point in study["points"] if point["id"] in study["chosen"]
    ]
    if len(chosen) < len(study["points"]) or study.get("left_out"):
        sweep += ["--points", ",".join(chosen)]
    address = store_address(path)
    out = ["--out", "report.html"] if address.startswith("s3:") else []  # no pages in buckets
    lines = [sweep, ["lmzoo", "rank", address], ["lmzoo", "report", address, *out]]
    note = [f"# made with {text}"] if (text := _environment(configs)) else []
    old = () if "options" in study or "asked" in study else OLD_STUDY_NOTE
    return "\n".join([*map(shlex.join, lines), *note, *old])


def _environment(configs: list[dict[str, Any]]) -> str:
    """Return what the runs were made with; a value that differs between runs is listed in full."""
    values: dict[str, dict[str, None]] = {}
    for config in configs:
        for name, value in config.get("environment", {}).items():
            if value != "":  # no commit outside a clone
                values.setdefault(name, {})[str(value)] = None
    parts = [f"{name} {' and '.join(values[name])}" for name in sorted(values)]
    return ", ".join(parts) + CHANGED * any("+" in c for c in values.get("commit", ()))


def _older_options(folder: StudyFolder, configs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the options of a study whose version did not store them as words."""
    study = folder.study
    for name in ("epochs", "samples", "seeds"):
        yield from (f"--{name}", str(study["budget"][name]))
    if "margin" in study:
        yield from ("--margin", str(study["margin"]))
    if "asked" not in study:
        yield from _inferred_options(folder, configs)
        return
    options = study["asked"]
    for name in ("corpus", "recipe", "seed", "parameters"):
        yield from (f"--{name}", str(options[name]))
    for name in ("parallel", "sampler", "pruner"):
        value = str(options.get(name, ""))
        if value.islower() or value.isdecimal():  # the script names an object, stored by its class
            yield from (f"--{name}", value)
    if options.get("max_seeds"):
        yield from ("--until-decided", "--max-seeds", str(options["max_seeds"]))
    for field, value in options["fields"].items():
        yield from ("--set", setting_text(field, value))
    for field, search_range in options["search"].items():
        if search_range is not None:  # None is the default range of the field
            yield from ("--search-space", range_text(field, search_range))
    for field in options["off"]:
        yield from ("--search-space", f"{field}=off")


def _inferred_options(folder: StudyFolder, configs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the options of an older study that its runs show."""
    corpora = [config["corpus"] for config in configs]
    if corpora and all(corpus == corpora[0] for corpus in corpora):
        yield from ("--corpus", corpora[0]["name"])
        for name, value in corpora[0].items():
            if name != "name" and value is not None:
                yield from ("--set", setting_text(f"corpus.{name}", value))
    if configs and all(config["recipe"].get("accumulate") == "epoch" for config in configs):
        yield from ("--recipe", "published")
    settings = (
        folder.runs.filter(pl.col("stage") == "tune").select("point", "setting").unique("point")
    )
    tuned = [json.loads(setting) for _, setting in settings.collect().iter_rows()]
    points = Counter(field for setting in tuned for field in setting)
    for field, search_range in search_ranges(folder.study).items():
        if 2 * points[field] > len(tuned):  # a field of few points belongs to these points only
            yield from ("--search-space", range_text(field, search_range))
