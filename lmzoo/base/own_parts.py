"""Parts from outside the package: files of the user, and installed packages. Standard library only.

A part is registered when its module is imported. Modules are imported from

    --plugin FILE.py or MODULE   an option of `lmzoo` and of every study
    LMZOO_PLUGINS                the same in the environment, separated like PATH
    entry points                 of installed packages, in the group `lmzoo.plugins`

`lmzoo.zoo` imports those of the environment and of packages. `user_code.py` brings the modules of a
run to the workers of a sweep and to the commands that open the run.
"""

import contextlib
import importlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from lmzoo.base.errors import UserError, user_path

GROUP = "lmzoo.plugins"
VARIABLE = "LMZOO_PLUGINS"
TRUST = "LMZOO_TRUST"
"""Set to 1: the code of every run may be imported (`user_code.py`)."""
_importing = False


def importing() -> bool:
    """Whether a module is being imported for its parts; a study must not run then."""
    return _importing


def import_plugins(specs: Sequence[str] | None):
    """Import the modules of a `--plugin` option."""
    for spec in specs or ():
        import_source(spec)


def import_installed():
    """Import the modules of the environment variable, and the entry points of packages."""
    import_plugins([spec for spec in os.environ.get(VARIABLE, "").split(os.pathsep) if spec])
    for entry in importlib.metadata.entry_points(group=GROUP):
        import_module(entry.module, f"entry point {entry.name!r} of {GROUP}")


def import_source(spec: str | Path) -> ModuleType:
    """Import a file, the folder of a package, or a module by name; return the module.

    The folder that contains the file or the package is added to `sys.path`, as `python FILE` does.
    A `UserError` says that there is no such file or module, that it raises an error, or that
    another module has its name.
    """
    path = user_path(spec)
    if path.suffix != ".py" and not path.is_dir():
        if path.is_file():
            raise UserError(f"{path} is not a Python file; its name ends in .py")
        return import_module(str(spec), str(spec))
    if not path.exists():
        raise UserError(f"there is no file {path}")
    root, name = locate(path.resolve())
    module = import_from(root, name)
    found = Path(getattr(module, "__file__", None) or "").resolve()
    # Python has imported the other one, and gives that.
    if path.resolve() not in (found, found.parent):
        raise UserError(
            f"{path} has the name of the module {name!r}, which is {found}; rename the file"
        )
    return module


def import_from(root: Path | str, name: str) -> ModuleType:
    """Import a module from the folder `root`, which is added to `sys.path`."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    # The file may have been written a moment ago.
    importlib.invalidate_caches()
    return import_module(name, f"{root}/{name.replace('.', '/')}.py")


def import_module(name: str, origin: str) -> ModuleType:
    """Import a module by name; `origin` says in error messages where the name comes from."""
    try:
        with _marked():
            return importlib.import_module(name)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        where = ""
        for frame in traceback.extract_tb(error.__traceback__):
            # The last frame that is not ours, nor one of Python's own import.
            if frame.filename != __file__ and not frame.filename.startswith("<frozen "):
                where = f" ({frame.filename}, line {frame.lineno})"
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"{origin} cannot be imported: {text}{where}") from error


def locate(path: Path) -> tuple[Path, str]:
    """Return the folder from which a file or package is imported, and the name of its module."""
    if "." in path.stem:
        name = path.stem.replace(".", "_")
        raise UserError(f"{path} has a dot in its name, so it is no module; name it {name}.py")
    parts = []
    if path.name != "__init__.py":
        parts.append(path.stem)
    folder = path.parent
    # A file of a package is imported by its whole name.
    while (folder / "__init__.py").exists():
        parts.append(folder.name)
        folder = folder.parent
    return folder, ".".join(reversed(parts))


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    # A file of the user may call `main(study)` at its top level.
    global _importing
    before = _importing
    _importing = True
    try:
        yield
    finally:
        _importing = before
