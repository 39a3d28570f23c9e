"""Labels, questions and names of a stranger's study are text in every form that people open."""

import csv
import functools
import io
import json
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lmzoo.base.foreign import below
from lmzoo.base.streams import CONTROL
from lmzoo.lab.analysis.frames import rank
from lmzoo.lab.analysis.render import render
from lmzoo.lab.analysis.report import render_report
from lmzoo.lab.analysis.report.figure import write_figure
from lmzoo.lab.store.labels import file_name
from tests.lab.analysis.toy_study import ToyStudy

HOSTILE = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text("utf-8"))
PLAIN = "plain"


def study_of(folder: Path, text: str) -> Path:
    """Write a study in which a text stands wherever a stranger may write one."""
    toy = ToyStudy(folder)
    toy.study_json |= dict.fromkeys(("name", "question", "note"), text)
    toy.study_json["script"] = ["python", text]
    toy.study_json["search"][text] = {"values": [text, "other"]}
    toy.add_points(
        """
        full:  3.0  3.01  3.02
        carry: 3.5  3.51  3.52
        write: 3.2  3.0   -
        """
    )
    for point in toy.study_json["points"]:
        point |= {"label": f"{text} {point['id']}", "aliases": [f"{text} too"]}
    toy.study_json["chosen"]["carry"]["setting"][text] = text
    return toy.write()


class Elements(HTMLParser):
    """The elements and attributes of a page, and its texts outside of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        names = tuple(name for name, _ in attrs)
        self.found.append((tag, names))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", ()))

    def handle_pi(self, data: str) -> None:
        self.found.append(("instruction", ()))


def of_html(path: Path) -> object:
    page = render_report(path)
    kinds = set()
    for tag, names in Elements(page).found:
        if tag not in ("option", "sub", "br"):
            kinds.add((tag, names))
    return sorted(kinds), page.count("<script"), page.count("</script")


def of_figure(path: Path) -> object:
    out = path / "forest.svg"
    write_figure(path, out, "7.1in", "token")
    names = []
    tags = set()
    for element in ElementTree.fromstring(out.read_text("utf-8")).iter():
        _, _, tag = element.tag.rpartition("}")
        tags.add(tag)
        for name in element.attrib:
            if re.search("^on|href", name):
                names.append(name)
    # A long line has parts.
    tags.discard("tspan")
    return sorted(tags), names


report_of = functools.cache(lambda path: rank(path).report)


def shown(path: Path, format: str) -> str:
    return render(report_of(path), format)


def of_markdown(path: Path) -> object:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("gfm-like", {"linkify": False})
    kinds = set()
    for format in ("md", "github"):
        for token in parser.parse(shown(path, format)):
            kinds.add(token.type)
            for child in token.children or ():
                kinds.add(child.type)
    # An escaped character.
    kinds.discard("text_special")
    return sorted(kinds)


CHARACTERS = """
textendash textemdash textbackslash textbar textasciitilde textasciicircum
equiv pm cdot times
"""
"""Commands of LaTeX that show a character."""


def of_latex(path: Path) -> object:
    code = re.sub(r"(?<!\\)%.*", "", shown(path, "latex"))
    commands = set(re.findall(r"\\([a-zA-Z]+)", code))
    return sorted(commands.difference(CHARACTERS.split()))


def of_csv(path: Path) -> object:
    header, *rows = csv.reader(io.StringIO(shown(path, "csv")))
    # A negative number is no formula.
    marks = re.compile(r"\s*[=+@＝＋－＠\t\r]|\s*-(?![\d.]+([eE][+-]?\d+)?$)")
    formulas = list(filter(marks.match, header))
    for row in rows:
        assert len(row) == len(header)
        formulas += filter(marks.match, row)
    return formulas


def of_terminal(path: Path) -> object:
    formats = ("table", "md", "latex", "github", "csv", "json")
    return [CONTROL.findall(shown(path, format)) for format in formats]


def of_json(path: Path) -> object:
    return sorted(json.loads(shown(path, "json")))


SINKS = {
    "html": of_html, "svg": of_figure, "markdown": of_markdown, "latex": of_latex, "csv": of_csv,
    "terminal": of_terminal, "json": of_json,
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = study_of(tmp_path_factory.mktemp("plain") / "study", PLAIN)
    return functools.cache(lambda sink: SINKS[sink](path))


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_text_is_text(kind, plain, tmp_path):
    """What is no text, such as elements, commands and formulas, is that of a plain study."""
    path = study_of(tmp_path / "study", HOSTILE[kind])
    for sink, read in SINKS.items():
        assert read(path) == plain(sink), sink


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_label_is_one_plain_name_of_a_file(kind, tmp_path):
    name = file_name(HOSTILE[kind])
    assert below(tmp_path, name).parent == tmp_path


@pytest.mark.parametrize(
    "name", ["nul", "CON.txt", "x.", "x ", "C:", "..", "", "\udcff", "a" * 300]
)
def test_names_that_no_system_takes_get_another(name, tmp_path):
    assert below(tmp_path, file_name(name)).parent == tmp_path
