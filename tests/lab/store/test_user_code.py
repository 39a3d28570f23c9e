"""The code of a user's parts: which files it has, its identity, and how it is imported again."""

import contextlib
import importlib
import marshal
import sys
from importlib import import_module
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import ModuleType

import pytest

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.base.own_parts import import_source
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import USER_CODE
from lmzoo.lab.store.trust import is_trusted, trust, trust_file
from lmzoo.lab.store.user_code import UserCode, load, save, user_code
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import identity_config
from tests.own_part_files import own_parts as own_parts

FILES = {"own_mingru.py", "own_gate.py"}


@pytest.fixture
def code(own_parts) -> UserCode:
    import_source(own_parts / "own_mingru.py")
    return user_code(["own_mingru"])


def forget(*modules: str) -> None:
    """Behave like another process, which has imported none of these modules."""
    for name in modules:
        del sys.modules[name]


def test_the_files_are_those_that_the_module_imports_from_its_folder(code):
    assert set(code.files) == FILES
    assert not user_code(["lmzoo.cells.mgu", "lmzoo"])


def test_only_these_files_change_the_hash(code, own_parts):
    for name, changes in {"own_study.py": False, "own_gate.py": True}.items():
        with (own_parts / name).open("a") as file:
            file.write("# changed\n")
        assert (user_code(["own_mingru"]).hash != code.hash) is changes


def test_all_files_of_a_package_count(own_parts):
    package = own_parts / "own_package"
    (package / "below").mkdir(parents=True)
    for path in ("__init__.py", "a.py", "below/__init__.py", "below/b.py"):
        (package / path).write_text("import own_gate\n")
    import_source(package / "a.py")
    code = user_code(["own_package.a"])
    assert len(code.files) == 5
    assert code.modules == {"own_package.a": str(own_parts)}


def test_a_script_has_the_name_of_its_file_and_a_notebook_is_refused(own_parts, monkeypatch):
    script = ModuleType("__main__")
    script.__file__ = str(own_parts / "own_mingru.py")
    script.__spec__ = None
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert user_code(["__main__"]).facts["modules"] == {"own_mingru": str(own_parts)}
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.raises(UserError, match="defined in __main__, which is not a file"):
        user_code(["__main__"])


def test_the_identity_of_a_run_contains_the_code(own_parts):
    spec = {"name": "iid"}
    corpus = open_corpus(spec)

    def config(cell: str) -> dict:
        model = zoo.config("recurrent_lm", cell=cell)
        return identity_config(model, Recipe(), corpus, spec, seed=0)

    assert USER_CODE not in config("mgu")
    import_source(own_parts / "own_mingru.py")
    first = config("own_mingru")
    assert first[USER_CODE]["modules"] == {"own_mingru": str(own_parts)}
    (own_parts / "own_gate.py").write_text("from torch import sigmoid as gate\n")
    importlib.reload(sys.modules["own_gate"])
    importlib.reload(sys.modules["own_mingru"])
    second = config("own_mingru")
    assert second["run"] != first["run"]
    own_parts.rename(own_parts.with_name("moved"))
    sys.modules["own_mingru"].__file__ = str(own_parts.with_name("moved") / "own_mingru.py")
    assert config("own_mingru")["run"] == second["run"], "the folder is no part of the identity"


def saved(code: UserCode, folder: Path) -> Path:
    save(code, Store(folder))
    return folder / USER_CODE / code.hash


@pytest.mark.parametrize("state", ["same", "changed", "deleted"])
def test_the_copy_is_imported_unless_the_source_is_the_same(
    state, code, own_parts, tmp_path, caplog
):
    copy = saved(code, tmp_path / "store")
    if state == "changed":
        (own_parts / "own_gate.py").write_text("1 / 0\n")
    elif state == "deleted":
        own_parts.rename(tmp_path / "away")
    forget("own_mingru", "own_gate")
    sys.path.remove(str(own_parts))
    load(code.facts, copy.parent)
    places = {str(own_parts), str(copy)}
    assert not places & {*sys.path, str(Path(sys.modules["own_mingru"].__file__ or "").parent)}
    assert ("own_mingru has changed since the run" in caplog.text) is (state == "changed")


def test_another_version_and_a_copy_that_is_not_the_code_are_refused(code, own_parts, tmp_path):
    copy = saved(code, tmp_path / "store")
    (own_parts / "own_gate.py").write_text("from torch import sigmoid as gate\n")
    forget("own_gate")
    with pytest.raises(
        UserError, match=r"differs from the one that is imported; .* another process"
    ):
        load(code.facts, copy.parent)
    forget("own_mingru")
    (copy / "own_gate.py").write_text("")
    with pytest.raises(UserError, match="is damaged"):
        load(code.facts, copy.parent)
    copy.rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="does not exist"):
        load(code.facts, copy.parent)


@pytest.mark.parametrize("where", ["the recorded folder", "the copy"])
def test_code_that_another_account_has_saved_is_not_run(
    where, code, own_parts, tmp_path, monkeypatch
):
    copy = saved(code, tmp_path / "store")
    if where == "the copy":
        own_parts.rename(tmp_path / "away")
    forget("own_mingru", "own_gate")
    load(code.facts, copy.parent)
    forget("own_mingru", "own_gate")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another account"))
    with pytest.raises(UserError, match=r"own_mingru.* no run of this account .*--trust"):
        load(code.facts, copy.parent)
    assert "own_mingru" not in sys.modules
    monkeypatch.setenv("LMZOO_TRUST", "1")
    load(code.facts, copy.parent)


@pytest.mark.parametrize("how", ["bytecode", "library", "module"])
def test_only_the_bytes_that_were_trusted_are_reached(how, code, tmp_path):
    copy = saved(code, tmp_path / "store")
    marker = tmp_path / "executed"
    evil = compile(f"open({str(marker)!r}, 'w')", "evil", "exec")
    name = "own_mingru" if how == "bytecode" else "a_library"
    target = copy / f"{name}.pyc"
    flags = b"\0\0\0\0"
    if how == "bytecode":
        target = Path(cache_from_source(str(copy / "own_mingru.py")))
        flags = b"\1\0\0\0"  # by a hash that Python does not check
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(MAGIC_NUMBER + flags + bytes(8) + marshal.dumps(evil))
    forget("own_mingru", "own_gate")
    facts = code.facts | {"modules": {"own_mingru": str(copy)}}
    if how == "module":
        facts["modules"] = {**facts["modules"], "a_library": str(copy)}
        with pytest.raises(UserError, match="a_library, which is none of its files"):
            load(facts, copy.parent)
    else:
        load(facts, copy.parent)
    with contextlib.suppress(ImportError):
        import_module("a_library")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("modules", "of_hash"),
    [(["own"], "0" * 12), ({"../own": ""}, "0" * 12), ({"own": 1}, "0" * 12), ({}, "../" * 4)],
)
def test_a_config_that_names_no_modules_is_one_line(modules, of_hash, tmp_path):
    with pytest.raises(UserError, match="the config of the run"):
        load({"hash": of_hash, "modules": modules}, tmp_path)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o606, 0o660])
def test_trust_is_a_private_file_in_the_home_of_an_account(mode, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "data")  # of the working folder, which may be a stranger's
    monkeypatch.setenv("HOME", str(tmp_path))
    trust("first")
    assert trust_file().is_relative_to(tmp_path / ".local/share")
    assert trust_file().stat().st_mode & 0o777 == 0o600
    trust_file().chmod(mode)
    assert is_trusted("first") is (mode == 0o600)
    trust("second")
    assert [is_trusted("first"), is_trusted("second")] == [mode == 0o600, True]
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert not is_trusted("second")


def test_code_is_what_runs_now_and_a_file_that_is_not_loaded_again_is_refused(
    tmp_path, monkeypatch
):
    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        importlib.invalidate_caches()

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    text = "from edited_part import f\nX = {}\nclass A:\n    def g(self):\n        return X\n"
    part_text = "def f():\n    return {}\n"
    write("edited_part.py", part_text.format(1))
    write("edited.py", text.format(1))
    edited = importlib.import_module("edited")
    part = sys.modules["edited_part"]
    hashes = {user_code(["edited"], loaded=True).hash}
    for name, changed in {"edited_part": part_text.format(2), "edited": text.format(2)}.items():
        write(f"{name}.py", changed)
        with pytest.raises(UserError, match=rf"{name}.py has .* importlib.reload\({name}\)"):
            user_code(["edited"], loaded=True)
        importlib.reload(part)
        importlib.reload(edited)
        hashes.add(user_code(["edited"], loaded=True).hash)
    assert len(hashes) == 3
    write("edited.py", f"# a comment\n{text.format(2)}")
    user_code(["edited"], loaded=True)
    write("edited_part.py", part_text.format(3))
    importlib.reload(part)
    with pytest.raises(UserError, match=r"reload\(edited\)"):  # it has the older `f`
        user_code(["edited"], loaded=True)
