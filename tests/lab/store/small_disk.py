"""Small file systems that tests fill."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """Mount a tmpfs at `path`.

    Args:
        path: The mount point, which is created.
        megabytes: Size of the file system.

    Raises:
        PermissionError: This account may not mount a file system.
    """
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise PermissionError(f"may not mount {path}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill_disk(file: Path) -> None:
    """Write to a new file until the disk is full."""
    with file.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
        while True:
            opened.write(b"\0" * 4096)
