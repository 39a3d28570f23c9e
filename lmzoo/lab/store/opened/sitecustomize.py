"""Notes which files a Python process reads. Standard library only; any Python 3 can import it.

Each Python process of a command finds this file as `sitecustomize`, because its folder comes first
in PYTHONPATH, and appends to the file that LMZOO_OPENED names:

    DIGEST PATH     the process reads this file
    +DIGEST PATH    the same, of a file that is newer than the run, which may have written it
    - PATH          the process writes this file, and has not read it

Left out are hidden files and those of Python, of installed packages and of the system, whose
versions belong to the environment. What code in C or Rust opens by itself is not seen.
"""

import os
import sys

VARIABLE = "LMZOO_OPENED"
"""Environment variable: when the run began, and a file in its folder."""
MOST = 2000
"""Files of a process; those beyond are not looked at."""
WHOLE = 1 << 22
"""Bytes up to which a digest is of the whole file; else it is of both ends and the size."""
HERE = os.path.dirname(os.path.abspath(__file__))
SYSTEM = (
    "/bin /dev /etc /lib /lib64 /proc /run /sbin /sys /usr/bin /usr/include /usr/lib /usr/share "
    "/usr/local/bin /usr/local/lib /usr/local/share"
).split() + [sys.prefix + "/bin", os.path.dirname(os.__file__), HERE[: -len("/lab/store/opened")]]


def digest(path):
    """Return the digest of a file; "" if it is none."""
    import hashlib

    if not os.path.isfile(path):  # a pipe would wait
        return ""
    with open(path, "rb") as file:
        content = file.read(WHOLE)
        size = file.seek(0, os.SEEK_END)
        if size > WHOLE:
            file.seek(-WHOLE, os.SEEK_END)
            content += file.read() + b"%d" % size
    return hashlib.sha256(content).hexdigest()


def is_own(path):
    """Whether a file is the user's: not of Python, a package or the system, and not hidden."""
    here = os.getcwd()
    shown = path
    if path.startswith(here):  # the working folder may itself be hidden
        shown = path[len(here) :]
    if "/." in shown or "-packages/" in path:
        return False
    return not any(path.startswith(folder + "/") for folder in SYSTEM)


def recorder(begun, log):
    """Return an audit hook that notes in a file what is read; below its folder's folder nothing."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    store = os.path.dirname(os.path.dirname(log)) + "/"
    known = {}

    def note(mark, path):
        os.write(file, os.fsencode(mark + " " + path + "\n"))

    def look(event, args):
        if event not in ("open", "cpython.run_file", "sqlite3.connect"):
            return
        try:
            name = os.path.abspath(os.fsdecode(args[0]))
            path = name
            folder, cached, module = name.rpartition("/__pycache__/")
            if cached:  # it stands for its source
                path = folder + "/" + module.partition(".")[0] + ".py"
            if path.startswith(store) or not is_own(path) or len(known) >= MOST:
                return
            if event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR):
                if path == name and path not in known:
                    known[path] = None
                    note("-", path)
                return
            found = os.stat(path)
        except Exception:  # no path, or no such file: the program goes on
            return
        if known.get(path, 0) not in (None, found.st_ctime_ns):
            known[path] = found.st_ctime_ns  # before `digest`, which opens it
            mark = digest(path)
            if found.st_mtime >= begun and not path.endswith(".py"):
                mark = "+" + mark
            note(mark, path)

    return look


if __name__ == "sitecustomize":
    if VARIABLE in os.environ and hasattr(sys, "addaudithook"):
        begun, _, log = os.environ[VARIABLE].partition(":")
        sys.addaudithook(recorder(float(begun), log))
    sys.path.remove(HERE)
    own = sys.modules.pop(__name__)
    try:
        import sitecustomize  # the one that Python would have imported
    except ImportError:
        sys.modules[__name__] = own
