"""Foreign names become paths below one folder, or are refused."""

import ast
import bz2
import gzip
import lzma
import os
import re
import tempfile
import zipfile
from pathlib import Path

import pytest

from lmzoo.base import foreign
from lmzoo.base.errors import UserError
from lmzoo.base.foreign import all_below, below, check_archive, checked, read_regular
from lmzoo.lab.judging.sources import read_results

PLAIN = ("config.json", "3f/test-3.npy", "a b/é.pt", "ab..c", "con1", "console.json", "x" * 255)
HOSTILE = (
    "", "/", "/etc/passwd", "//x", "..", "../x", "a/../../x", "a/..", "a/./b", ".", "a//b", "a/",
    "C:x", "c:/x", "a/D:", "..\\x", "a\\..\\b", "a\0b", "a\nb", "\x1b[2Jx", "a\x7f", "\u202eexe",
    "a\u200bb", "\udcff", "NUL", "nul.txt", "a/CON", "com1", "lpt9.json", "aux.tar.gz", "x.", "x ",
    "x" * 256, "é" * 128, "a/" * 600 + "x", None, 3, ["x"], b"x",
)  # fmt: skip
ALIKE = (
    ("a", "A"), ("run/x", "Run/y"), ("é", "e\u0301"), ("ﬁ", "fi"), ("ß", "ss"), ("x", "x/y"),
    ("a/b", "a/b/c/d"), ("K", "\u212a"),
)  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_name_is_a_path_below(name, tmp_path):
    assert below(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_name_that_is_none_is_refused_with_the_name(name, tmp_path):
    with pytest.raises(UserError) as caught:
        below(tmp_path, name)
    assert ascii(name)[:190] in str(caught.value)


@pytest.mark.parametrize("names", ALIKE, ids=ascii)
def test_names_that_may_be_one_file_are_refused_together(names, tmp_path):
    for order in (names, names[::-1]):
        assert [*map(checked, ([name] for name in order))] == [[name] for name in order]
        with pytest.raises(UserError, match="refused"):
            all_below(tmp_path, order)


def test_links_out_of_the_folder_pipes_and_devices_are_refused(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
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
            packed, _ = 0, monkeypatch.setattr(foreign, "LEAST", 100)
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


ROOMS = (
    *("lab/store", "lab/analysis", "lab/judging", "lab/cli", "train/trained.py", "data/files.py"),
    "lab/study/study_store.py",
)
"""What reads files of somebody else."""
SINKS = {
    *("extract", "extractall", "unpack_archive", "joinpath", "symlink_to", "hardlink_to"),
    *("write_bytes", "write_text", "copyfile", "copytree", "move"),
}
CHECKED = {
    "lab/store/archive.py": {
        "folder / name": "a constant of the caller",
        "study / run": "of a folder that exists, or of `_find`; restored members are all_below",
        "target / run": "whose files are all_below",
        "study / FOLDER / f'{last + 1:05}.zip'": "a number",
        "(target / USER_CODE).symlink_to((study / USER_CODE).resolve())": "in a temporary folder",
        "path.write_bytes(archive.read(name) or b'')": "all_below",
    },
    "lab/store/local.py": {
        "folder / name": "of a lock, a constant",
        "self.path / ": "a constant of the caller, or checked by it",
    },
    "lab/store/pack_files.py": {
        "store / f'{PREFIX}{worker}'": "of a folder that exists, or of this sweep",
        "store / run": "all_below",
    },
    "lab/store/opened/__init__.py": {"folder / name": "a file whose digest is taken"},
    "lab/store/s3.py": {
        "_scratch_folder(os.getpid()) / bucket.name": "of the user's address",
        "_scratch_folder(os.getpid()) / bucket.name / prefix": "of the user's address",
        "paths[name].write_bytes(found.data)": "all_below",
    },
    "lab/store/user_code.py": {
        "store / USER_CODE / code.hash": "made of the bytes",
        "path.write_bytes(files[name])": "all_below",
        "root / top": "an identifier of _plain_modules or of a syntax tree",
        "root.joinpath(top, *below[:n])": "identifiers",
    },
    "lab/analysis/ranking_table.py": {"RUNS / path.name": "in a sentence"},
    "lab/analysis/report/facts.py": {"study['name']": "in a sentence"},
    "lab/analysis/report/figure.py": {"out.write_bytes": "the user's", "'page.css'": "of lmzoo"},
    "lab/analysis/report/forest.py": {"'page.css'": "of lmzoo"},
    "lab/analysis/report/page.py": {"'glossary.md'": "of lmzoo"},
    "lab/analysis/study_parquet.py": {"target / folder": "checked by read_rows"},
    "lab/analysis/stored.py": {"path / run": "an entry of the folder"},
    "lab/analysis/columns.py": {"'columns.csv'": "of lmzoo"},
    "lab/analysis/render.py": {"folder / name": "of the user's folder"},
    "lab/judging/sources.py": {"file.parent / name": "a constant"},
    "lab/judging/commands.py": {
        "Path(folder) / name": "base or candidate",
        "self.folder / name": "of the user's command",
        "made[-1] / prefix": "of the user's repository",
    },
    "lab/judging/trackers.py": {"folder / name": "a constant", "folder / f'{kind}s'": "one, too"},
    "lab/cli/report.py": {"target.write_text(text, encoding='utf-8')": "the user's"},
    "lab/cli/run_names.py": {"study / run": "of a folder or an archive that exists"},
    "lab/study/study_store.py": {"self.store / run_id": "the identity of a planned run"},
    "train/trained.py": {"folder / path": "a text that is only read, as data"},
}
"""File -> part of an expression that joins or writes a name, and why that is no foreign one."""


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
        is_sink = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in SINKS
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            is_sink = bool(PATHS.search(ast.unparse(node.left))) and not is_fixed(node.right)
        found += [ast.unparse(node)] * is_sink
    return found


def test_every_join_of_a_name_goes_through_the_door_or_is_listed():
    assert joins("path / f(b); c.extractall(); root / X; 1 / b") == [
        "path / f(b)",
        "c.extractall()",
    ]
    package = Path(foreign.__file__).parents[1]
    places = [package / room for room in ROOMS]
    files = [f for p in places for f in ([p] if p.is_file() else sorted(p.rglob("*.py")))]
    new = []
    for file in files:
        own = file.relative_to(package).as_posix()
        known = CHECKED.get(own, {})
        found = joins(file.read_text("utf-8"))
        new += [f"{own}: {text}" for text in found if not any(part in text for part in known)]
    assert new == [], "use lmzoo/base/foreign.py, or say above why the name is no foreign one"


SAFE = {
    "torch.load": "weights_only=True", "np.load": "allow_pickle=False",
    "yaml.load": ", _Settings)",  # a SafeLoader, whose tags do not count
}  # fmt: skip
"""Reader -> what makes it a reader of data."""
UNSAFE = {
    *("eval", "exec", "pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads"),
    *("yaml.unsafe_load", "yaml.full_load", "marshal.loads", "marshal.load"),
    *(
        "shelve.open",
        "joblib.load",
        "pd.read_pickle",
        "pl.read_database",
        "pl.DataFrame.deserialize",
    ),
    *("shutil.unpack_archive", "tarfile.open", "os.system", "os.popen"),
}


def runs_code(source: str) -> list[str]:
    """Return the calls that may execute what they read."""
    found = []
    for call in ast.walk(ast.parse(source)):
        name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        is_safe = name in SAFE and SAFE[name] in ast.unparse(call)
        found += [ast.unparse(call)] * (name in UNSAFE or (name in SAFE and not is_safe))
    return found


def test_no_reader_of_files_executes_them():
    assert runs_code("torch.load(x); eval(y); yaml.safe_load(z)") == ["torch.load(x)", "eval(y)"]
    package = Path(foreign.__file__).parents[1]
    found = {f.name: runs_code(f.read_text("utf-8")) for f in package.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls} == {}
