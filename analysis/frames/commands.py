"""The commands that make a study and its page again, from what its folder says of itself."""

import json
import shlex
from pathlib import Path
from typing import Any

from analysis.frames.load import Folder
from lmzoo.record import CONFIG, read_json


def reproduce(path: Path, folder: Folder) -> str:
    """Shell lines: the sweep with its corpus, budget and search, then the table and this page."""
    study = folder.study
    budget = study["budget"]
    configs = [
        config
        for run in folder.runs.select("run").collect()["run"]
        if (config := read_json(folder.path / run / CONFIG))
    ]
    words = ["python", f"sweeps/{study['name']}.py", "--storage", str(path.parent)]
    for name in ("epochs", "samples", "seeds"):
        words += [f"--{name}", str(budget[name])]
    corpora = [config["corpus"] for config in configs]
    if corpora and all(corpus == corpora[0] for corpus in corpora):
        words += _corpus(corpora[0])
    if configs and all(config["recipe"].get("accumulate") == "epoch" for config in configs):
        words += ["--recipe", "published"]
    for name, where in study["search"].items():
        words += ["--search-space", f"{name}={_space(where)}"]
    chosen = [point["label"] for point in study["points"] if point["id"] in study["chosen"]]
    if len(chosen) < len(study["points"]) and not any("," in label for label in chosen):
        words += ["--points", ",".join(chosen)]
    lines = [words, ["python", "analysis/rank.py", str(path)]]
    lines.append(["python", "analysis/report.py", str(path)])
    made = next((config.get("environment") for config in configs), None) or {}
    versions = ", ".join(f"{name} {value}" for name, value in sorted(made.items()))
    note = [f"# made with {versions}"] if versions else []
    note.append(
        "# options that set model fields are not noted; each run's config.json holds them all"
    )
    return "\n".join([*(shlex.join(line) for line in lines), *note])


def _corpus(corpus: dict[str, Any]) -> list[str]:
    words = ["--corpus", corpus["name"]]
    for name, value in corpus.items():
        if name != "name" and value is not None:
            words += [
                "--set",
                f"corpus.{name}={value if isinstance(value, str) else json.dumps(value)}",
            ]
    return words


def _space(where: dict[str, Any]) -> str:
    if "values" in where:
        return ",".join(map(str, where["values"]))
    return f"{where['low']:g}:{where['high']:g}" + (":log" if where.get("log") else "")
