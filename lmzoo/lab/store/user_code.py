"""The source files of a run's parts that are outside the package. Standard library only.

The identity of a run with parts from outside `lmzoo` contains the hash of their files. Its config
has the hash, and the folder from which each module was imported:

    "user_code": {"hash": ..., "modules": {"mingru": "/home/me/study"}}

`user_code/HASH` in the store has a copy of the files, which counts unless those in the recorded
folder are unchanged. A run folder from somebody else could run any code that way. So a command
imports only code that a run of this account has saved (`trust.py`), or all code if the user trusts
it (`--trust`, or LMZOO_TRUST=1). What was read and trusted is what runs: the bytes are written into
a private folder, from which Python imports. The folders of others are never on `sys.path`, and no
other file of theirs is reached: no `__pycache__`, no module of the name of a library.

The files of a module are its own and those that it imports from the same folder, at any depth; in a
package, all files of the package. Only `.py` files count.
"""

import ast
import functools
import logging
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lmzoo.base import own_parts as plugins
from lmzoo.base.environment import begin_study
from lmzoo.base.errors import UserError
from lmzoo.base.foreign import all_below, below, read_regular
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.store.loaded_code import check_loaded
from lmzoo.lab.store.local import Store, temporary_folder
from lmzoo.lab.store.opened import noted
from lmzoo.lab.store.records import USER_CODE
from lmzoo.lab.store.trust import digest_of, is_trusted, trust

LOG = logging.getLogger("lmzoo")
PACKAGE = __name__.partition(".")[0]
Files = dict[str, bytes]
"""Path relative to the folder on `sys.path` -> content."""


@dataclass(frozen=True)
class UserCode:
    """Modules from outside the package, and their files; false if there are none."""

    modules: Mapping[str, str] = field(default_factory=dict)
    """Module -> folder from which it was imported."""
    files: Files = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.modules)

    def __or__(self, other: "UserCode") -> "UserCode":
        modules = dict(self.modules) | dict(other.modules)
        return UserCode(modules, self.files | other.files)

    @property
    def hash(self) -> str:
        """The hash of paths and contents, 12 hexadecimal digits."""
        return files_hash(self.files)

    @property
    def facts(self) -> FieldsDict:
        """What the config of a run says about its code."""
        return {"hash": self.hash, "modules": dict(self.modules)}


def files_hash(files: Files) -> str:
    """Return the hash of paths and contents, 12 hexadecimal digits."""
    return digest_of(files.items())[:12]


def user_code(modules: Iterable[str], *, loaded: bool = False) -> UserCode:
    """Return the code of those modules that are outside the package; each must have a file.

    `loaded`: a `UserError` says that this process has imported other code.
    """
    code = UserCode()
    for name in sorted(set(modules)):
        if name.partition(".")[0] != PACKAGE:
            own = _module_code(name)
            if loaded:
                check_loaded(own.files)
            code |= own
    return code


def load(facts: Fields, copies: Path, *, own: bool = False):
    """Import the modules of a run, and log a warning if their source has changed since.

    `facts` are `user_code` of the run's config, and `copies` is the folder with the copies of the
    files of all runs. A `UserError` says that another version of a module is imported already, that
    the copy is damaged, or that nobody trusts the code. `own`: this account has sent it.
    """
    modules = _plain_modules(facts)
    names = ", ".join(modules)
    copy = below(copies, facts["hash"])
    imported = user_code(sys.modules.keys() & modules.keys())
    if imported.hash == facts["hash"]:
        return
    files: Files = {}
    # The files in the recorded folders count if they are those of the run; else the copy.
    for name, root in modules.items():
        files |= _files_below(Path(root), name)
    if files_hash(files) != facts["hash"]:
        changed = bool(files)
        files = _read_copy(copy)
        if files_hash(files) != facts["hash"]:
            state = "is damaged"
            if not files:
                state = "does not exist"
            raise UserError(f"the source of {names} has changed, and its copy {copy} {state}")
        if changed:
            LOG.warning("%s has changed since the run; its copy %s is used", names, copy)
        modules = dict.fromkeys(modules, str(copy))
    # Python imports a module of one name once in a process.
    if not imported.files.items() <= files.items():
        raise UserError(
            f"{names}: the version of the run differs from the one that is imported; its source "
            f"is in {copy}; open the run in another process"
        )
    for name in modules:
        file = name.replace(".", "/")
        if not {f"{file}.py", f"{file}/__init__.py"} & files.keys():
            raise UserError(f"the config of the run names {name}, which is none of its files")
    if not own:
        _check_trust(files, names, copy)
        # What was read and trusted is what runs.
        root = temporary_folder("code")
        for name, path in all_below(root, files).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
        modules = dict.fromkeys(modules, str(root))
    for name, root in modules.items():
        plugins.import_from(root, name)


def _read_copy(copy: Path) -> Files:
    """Return the files of a copy in the store; none if there is no copy."""
    names = [path.relative_to(copy).as_posix() for path in copy.rglob("*.py")]
    files: Files = {}
    for name, path in all_below(copy, names).items():
        files[name] = read_regular(path)
    return files


def _plain_modules(facts: Fields) -> dict[str, str]:
    """Return module and folder of each; a `UserError` if the config has anything else there."""
    code: Fields = {}
    if isinstance(facts, Mapping):
        code = facts
    modules = code.get("modules")
    is_hash = re.fullmatch("[0-9a-f]{12}", str(code.get("hash")))
    if not isinstance(modules, Mapping) or not is_hash:
        raise UserError(
            f"the config of the run is damaged: its {USER_CODE} is {ascii(facts)[:200]}"
        )
    for name, root in modules.items():
        # A name becomes a path and an import, so it may be nothing else.
        is_name = all(map(str.isidentifier, name.split(".")))
        if not is_name or not isinstance(root, str) or "\0" in root:
            raise UserError(f"the config of the run names {ascii(name)[:200]}, which is no module")
    return dict(modules)


def _check_trust(files: Files, names: str, copy: Path):
    """Raise a `UserError` unless this account or the user trusts these files."""
    digest = digest_of(files.items())
    if is_trusted(digest):
        return
    if os.environ.get(plugins.TRUST, "") in ("", "0"):
        raise UserError(
            f"the run brings code of its own ({names}) that no run of this account has saved; "
            f"read {copy}, then repeat the command with --trust"
        )
    listed = ", ".join(sorted(files))
    LOG.warning("--trust runs the code of the run: %s, SHA-256 %s", listed, digest[:16])


def save(code: UserCode, store: Store):
    """Write the files of some code into `user_code/HASH` of a store, if there are any."""
    if code:
        trust(digest_of(code.files.items()))
    for path, content in code.files.items():
        folder = store / USER_CODE / code.hash
        parents, _, name = path.rpartition("/")
        for parent in filter(None, parents.split("/")):
            folder /= parent
        if folder.read(name) != content:
            folder.write(name, content)


def import_shipped(code: UserCode):
    """Import code that another process has sent, from the sender's files if they are here too."""
    begin_study()
    folder = temporary_folder("code")  # until the process ends: a module may import late
    save(code, Store(folder))
    with noted():
        load(code.facts, folder / USER_CODE, own=True)


def _module_code(name: str) -> UserCode:
    """Return the code of an imported module as its files are now."""
    module = sys.modules[name]
    path = Path(getattr(module, "__file__", None) or "").resolve()
    if not path.is_file():
        raise UserError(
            f"a part is defined in {name}, which is not a file, so that no other process can "
            "import it; write the part to a file and import that"
        )
    if name == "__main__":
        if module.__spec__:  # `python -m MODULE`
            name = module.__spec__.name
        else:  # `python FILE`
            _, name = plugins.locate(path)
    depth = name.count(".") + (path.name == "__init__.py")
    root = path.parents[depth]  # the folder on `sys.path`
    return UserCode({name: str(root)}, _files_below(root, name))


def _files_below(root: Path, name: str) -> Files:
    """Return the files of a module that is imported from the folder `root`."""
    files: Files = {}
    if not root.is_dir():
        return files
    shared = {Path(sysconfig.get_path(key)) for key in ("purelib", "platlib", "stdlib")}
    pending = {name}
    packages: set[str] = set()  # read whole; without this, each import of one lists all its files
    while pending:
        name = pending.pop()
        top = name.partition(".")[0]
        if top in packages:
            continue
        if (root / top / "__init__.py").is_file():
            packages.add(top)
        for path in _module_files(root, name):
            relative = path.relative_to(root).as_posix()
            if relative not in files:
                files[relative] = read_regular(path)
                if root not in shared:  # they have packages of other people
                    pending |= _imports(files[relative])
    return files


def _module_files(root: Path, name: str) -> list[Path]:
    """Return the file of a module, or all files of its package; [] if they are not in `root`."""
    parts = name.split(".")
    top = root / parts[0]
    if parts[0] == PACKAGE:
        return []
    if (top / "__init__.py").is_file():
        return sorted(top.rglob("*.py"))
    files = []
    folder = root
    # The file may be at any depth: a folder needs no `__init__.py`.
    for part in parts:
        folder /= part
        file = folder.with_suffix(".py")
        if file.is_file():
            files.append(file)
    return files


@functools.cache
def _imports(source: bytes) -> set[str]:
    """Return the names that a file imports from other modules, relative imports excluded."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # nobody has imported this file
        return set()
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names
