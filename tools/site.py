"""Hooks of `mkdocs.yml`: the pages of the site that are generated from the code.

catalogue/      every row of the zoo, by family: equations, switches, source, score, size, audit
reference/api/  every public module
reference/cli   every subcommand and its options
"""

import json
import os
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import lmzoo

AUDITED = Path(__file__).parents[1] / "docs/results/audits.json"
"""Every row audited, which takes a minute: `make results`."""
AUDITS = ("future", "itself", "total", "pads", "mates", "steps")
SEARCH_SHIM = "https://unpkg.com/iframe-worker/shim"
MEANINGS = {
    "exact": "normalised causal log-likelihood",
    "bound": "lower bound of the log-likelihood",
    "reconstruction": "log-probability of a sequence that was also the input",
    "conditional": "log-likelihood given another sequence",
    "objective": "training objective; no sequence has a probability",
}

SECTION = r'<label class="md-nav__title" for="(__nav_\d+)">\s*<span[^>]*></span>\s*(.*?)\s*</label>'
"""Number and title of a section of the navigation."""
FILTER = (
    '<p><label>Show rows with <input type="search" id="rows" placeholder="lstm exact"></label></p>'
)
"""A field that hides the rows of a page's tables without one of its words (`assets/site.js`)."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in [*_catalogue(), *_api(), ("reference/cli.md", _cli())]:
        files.append(File.generated(config, path, content=text))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load the script that the search needs from the site; name what a screen reader announces."""
    root = "../" * page.url.count("/")
    output = output.replace(SEARCH_SHIM, f"{root}assets/iframe-worker.js")
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
    for number, title in re.findall(SECTION, output):
        label = f'id="{number}_label"'
        output = output.replace(label, f'{label} aria-label="{title}"')
    return output


def _run(*arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout


def _catalogue() -> Iterator[tuple[str, str]]:
    from lmzoo import zoo
    from lmzoo.cli.catalogue import TASK, row_facts

    audits: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in json.loads(AUDITED.read_text("utf-8")):
        audits[one["name"]].append(one)
    families: dict[str, list[str]] = defaultdict(list)
    for name in zoo.names():
        families[zoo.row(name).family].append(name)
    index = [
        "# Catalogue",
        f"{len(zoo.names())} rows in {len(families)} families. Parameters are counted at a "
        f"vocabulary of {TASK.vocab} and a length of {TASK.length}. A row is a name that "
        "`lmzoo train`, `lmzoo describe` and a study accept. "
        "[Which systems have no row, and why](../sources.md#not-in-the-zoo).",
        "| score | meaning |\n| --- | --- |",
    ]
    index[-1] += "".join(f"\n| {score} | {meaning} |" for score, meaning in MEANINGS.items())
    index.append(FILTER)
    for family, names in families.items():
        page = f"{family}.md"
        index.append(f"## [{family}]({page})")
        index.append(
            "| row | aliases | score | parameters | summary |\n| --- | --- | --- | ---: | --- |"
        )
        parts = [f"# {family}"]
        for name in names:
            row = zoo.row(name)
            facts = row_facts(row)
            count = "" if facts["parameters"] is None else f"{facts['parameters']:,}"
            index[-1] += (
                f"\n| [{name}]({page}#{name}) | {' '.join(row.aliases)} | {row.score} "
                f"| {count} | {_escape(row.summary)} |"
            )
            parts.append(_row(row, facts, audits[name]))
        yield f"catalogue/{page}", "\n\n".join(parts) + "\n"
    yield "catalogue/index.md", "\n\n".join(index) + "\n"


def _row(row: Any, facts: dict[str, Any], audits: list[dict[str, Any]]) -> str:
    from lmzoo import zoo
    from lmzoo.base.config import to_dict
    from lmzoo.base.search_space import ranges
    from lmzoo.cli.catalogue import equations

    lines = [f"## {row.name} {{#{row.name}}}", row.summary]
    table = [("aliases", ", ".join(row.aliases)), ("score", MEANINGS.get(row.score, ""))]
    table += [("source", row.source), ("document", row.document)]
    if row.model is not None:
        state = facts["state_size"]
        table.append(("parameters", f"{facts['parameters']:,}"))
        table.append(("state", f"{state} numbers per step" if state is not None else "the prefix"))
        table += [("audit, norm=time_std" if a["variant"] else "audit", _audit(a)) for a in audits]
    filled = [(key, value) for key, value in table if value]
    lines.append(
        "| fact | value |\n| --- | --- |" + "".join(f"\n| {k} | {_escape(v)} |" for k, v in filled)
    )
    if row.model is None:
        return "\n\n".join(lines)
    config = zoo.config(row.name)
    lines += [f"```text\n{text.strip()}\n```" for text in equations(config)]
    searched = "".join(f"\n{field}: {found}" for field, found in ranges(type(config)).items())
    lines.append(
        '??? note "Default config"\n'
        + _indent(f"```json\n{json.dumps(to_dict(config), indent=2)}\n```")
    )
    if searched:
        lines.append('??? note "Search ranges"\n' + _indent(f"```text{searched}\n```"))
    return "\n\n".join(lines)


def _audit(audit: dict[str, Any]) -> str:
    measured = [f"{key} {audit[key]:.0e}" for key in AUDITS if audit.get(key) is not None]
    verdict = f"**fails**: {', '.join(audit['faults'])}" if audit["faults"] else "passes"
    return f"{verdict} ({', '.join(measured)})" if measured else verdict


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


def _api() -> Iterator[tuple[str, str]]:
    index = ["# Python API", "One page per package; modules in the order of the alphabet."]
    modules = sorted(m.name for m in pkgutil.walk_packages(lmzoo.__path__, prefix="lmzoo."))
    packages: dict[str, list[str]] = defaultdict(list)
    for name in modules:
        if any(part.startswith("_") for part in name.split(".")):
            continue
        packages[".".join(name.split(".")[:2])].append(name)
    for package, names in packages.items():
        page = f"{package.removeprefix('lmzoo.')}.md"
        summary = (sys.modules.get(package) or __import__(package, fromlist=["_"])).__doc__ or ""
        index.append(f"- [`{package}`]({page}): {summary.strip().splitlines()[0]}")
        blocks = [f"# {package}"]
        for name in names:
            if name != package:
                blocks.append(f"## {name.removeprefix('lmzoo.')} {{#{name}-page}}")
            blocks.append(f"::: {name}\n    options:\n      heading_level: 3")
        yield f"reference/api/{page}", "\n\n".join(blocks) + "\n"
    yield "reference/api/index.md", "\n\n".join(index[:2]) + "\n\n" + "\n".join(index[2:]) + "\n"


def _cli() -> str:
    from typer.testing import CliRunner

    from lmzoo.cli.main import COMMANDS, build_app

    runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"})

    def help_of(name: str) -> str:
        arguments = [name, "--help"] if name else ["--help"]
        return runner.invoke(build_app(name), arguments, prog_name="lmzoo").output.strip()

    text = ["# Command line", f"```text\n{help_of('')}\n```"]
    text += [f"## lmzoo {name}\n\n```text\n{help_of(name)}\n```" for name in COMMANDS]
    study = _run("sweeps/gru_ablation.py", "--help").strip()
    text.append(
        f"## A study\n\nEvery file in `sweeps/` has the same options.\n\n```text\n{study}\n```"
    )
    return "\n\n".join(text) + "\n"
