"""Foreign names become paths below one folder, or are refused."""

import ast
import bz2
import gzip
import lzma
import os
import re
import tempfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from lmzoo.base import foreign
from lmzoo.base.errors import UserError
from lmzoo.base.foreign import all_below, below, check_archive, checked, read_regular
from lmzoo.lab.judging.sources import read_results

PLAIN = ("config.json", "3f/test-3.npy", "a b/é.pt", "ab..c", "con1", "console.json", "x" * 255)
DATA = tomllib.loads(Path(__file__).with_name("foreign.toml").read_text("utf-8"))
HOSTILE = (*DATA["hostile"], "\udcff", "x" * 256, "é" * 128, "a/" * 600 + "x", None, 3, ["x"], b"x")


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_name_is_a_path_below(name, tmp_path):
    assert below(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_name_that_is_none_is_refused_with_the_name(name, tmp_path):
    with pytest.raises(UserError) as caught:
        below(tmp_path, name)
    assert ascii(name)[:190] in str(caught.value)


@pytest.mark.parametrize("names", DATA["alike"], ids=ascii)
def test_names_that_may_be_one_file_are_refused_together(names, tmp_path):
    for order in (names, names[::-1]):
        assert list(map(checked, ([name] for name in order))) == [[name] for name in order]
        with pytest.raises(UserError, match="refused"):
            all_below(tmp_path, order)


def test_links_out_of_the_folder_pipes_and_devices_are_refused(tmp_path):
    root = tmp_path / "root"
    outside = tmp_path / "outside"
    for folder in (root / "in", outside):
        folder.mkdir(parents=True)
    for name, target in (("out", outside), ("to", "in"), ("loop", "loop"), ("zero", "/dev/zero")):
        (root / name).symlink_to(target)
    os.mkfifo(root / "in/pipe")
    assert below(root, "to/x") == root / "to/x"
    (tmp_path / "link").symlink_to(root)  # of the user's: the root may be one
    assert below(tmp_path / "link", "x") == tmp_path / "link/x"
    for name in ("out", "out/x", "out/new/x", "loop", "loop/x", "zero", "in/pipe", "to/pipe"):
        with pytest.raises(UserError, match="refused"):
            below(root, name)
    for name in ("zero", "in/pipe"):
        with pytest.raises(UserError, match="a pipe or a device"):
            read_regular(root / name)
    (root / "x").write_text("x")
    assert read_regular(root / "x") == b"x"


@pytest.mark.parametrize("how", ["members", "size", "ratio", "link", "device", "none"])
def test_an_archive_has_limits_of_members_size_and_ratio(how, monkeypatch):
    monkeypatch.setattr(foreign, "MEMBERS", 3)
    monkeypatch.setattr(foreign, "LEAST", 10_000)
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            member = zipfile.ZipInfo("x")
            member.external_attr = {"link": 0o120777, "device": 0o020666}.get(how, 0) << 16
            archive.writestr(member, "target")
            for number in range(3 if how == "members" else 2):
                archive.writestr(f"{number}", b"0" * (30_000 if how == "ratio" else 100))
            packed = file.tell()
        if how == "size":
            packed = 0
            monkeypatch.setattr(foreign, "LEAST", 100)
        if how == "none":
            check_archive(archive, "x.zip", packed)
            return
        with pytest.raises(UserError, match=r"mean harm"):
            check_archive(archive, "x.zip", packed if how != "ratio" else packed // 10)


@pytest.mark.parametrize("module", [gzip, bz2, lzma])
def test_a_packed_table_has_a_limit(module, monkeypatch, tmp_path):
    monkeypatch.setattr(foreign, "LEAST", 1000)
    file = tmp_path / "x.csv"
    for zeros, error in ((10, "no rows"), (1_000_000, "more than 200 times its")):
        file.write_bytes(module.compress(module.compress(b"a,b\n" + b"\n" * zeros)))
        with pytest.raises(UserError, match=error):
            read_results(file)


def is_fixed(node: ast.expr) -> bool:
    """Return whether an expression is a constant, or a text of constants."""
    if isinstance(node, ast.JoinedStr):
        return all(isinstance(v, ast.Constant) or is_fixed(v.value) for v in node.values)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format":
        return is_fixed(node.func.value) and all(map(is_fixed, node.args))
    name = getattr(node, "attr", getattr(node, "id", ""))
    return isinstance(node, ast.Constant) or name.isupper()


PATHS = re.compile("path|folder|store|study|root|dir|target|cop(y|ies)|runs|place|where|Path|file")
"""Words in what is a path and no number."""


def joins(source: str) -> list[str]:
    """Return the expressions that join paths, or write or extract files."""
    found = []
    for node in ast.walk(ast.parse(source)):
        is_sink = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in DATA["sinks"]
        if is_sink and node.func.attr == "joinpath":  # a file of the package has a fixed name
            is_sink = not all(map(is_fixed, node.args))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            is_sink = bool(PATHS.search(ast.unparse(node.left))) and not is_fixed(node.right)
        found += [ast.unparse(node)] * is_sink
    return found


def test_every_join_of_a_name_goes_through_the_door_or_is_listed():
    assert joins("path / f(b); c.extractall(); root / X; 1 / b; a.joinpath('b')") == [
        "path / f(b)",
        "c.extractall()",
    ]
    package = Path(foreign.__file__).parents[1]
    files = []
    for room in DATA["rooms"]:
        place = package / room
        if place.is_file():
            files.append(place)
        else:
            files += sorted(place.rglob("*.py"))
    new = []
    for file in files:
        own = file.relative_to(package).as_posix()
        known = DATA["checked"].get(own, {})
        found = joins(file.read_text("utf-8"))
        new += [f"{own}: {text}" for text in found if not any(part in text for part in known)]
    assert new == [], "use lmzoo/base/foreign.py, or say in foreign.toml why not"


def runs_code(source: str) -> list[str]:
    """Return the calls that may execute what they read."""
    found = []
    for call in ast.walk(ast.parse(source)):
        name = ""
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func)
        safe = DATA["safe"].get(name)
        is_safe = safe is not None and safe in ast.unparse(call)
        if name in DATA["unsafe"] or (safe and not is_safe):
            found.append(ast.unparse(call))
    return found


def test_no_reader_of_files_executes_them():
    assert runs_code("torch.load(x); eval(y); yaml.safe_load(z)") == ["torch.load(x)", "eval(y)"]
    package = Path(foreign.__file__).parents[1]
    found = {f.name: runs_code(f.read_text("utf-8")) for f in package.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls} == {}
