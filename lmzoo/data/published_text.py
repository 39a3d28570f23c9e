"""Find the text of a published corpus: in an archive or unpacked, downloaded or in `--data-dir`.

    FILE            DIR/FILE or DIR/FOLDER/FILE, plain or .gz
    an archive      the same, or what it contains: DIR/PATTERN or DIR/FOLDER/PATTERN, plain or .gz

Archives are read without unpacking them on disk.
"""

from pathlib import Path

from lmzoo.base.errors import UserError
from lmzoo.data.download import RemoteFile, locate
from lmzoo.data.files import read_bytes, read_members


def read_published(file: RemoteFile, pattern: str, data_dir: Path | None, corpus: str) -> bytes:
    """Return the text of the files in an archive whose names end in `pattern`, in their order.

    Raises:
        UserError: The files are missing or broken, or their download fails.
    """
    if data_dir is not None and (found := _unpacked(file, pattern, data_dir)):
        texts = [read_bytes(path) for path in found]
    else:
        path = _archive(file, pattern, data_dir, corpus)
        texts = list(read_members(path, pattern).values())
        if not texts:
            raise UserError(f"{corpus}: {path} has no {pattern}; download {file.url}, which has it")
    return b"\n".join([*(text.removesuffix(b"\n") for text in texts[:-1]), texts[-1]])


def _archive(file: RemoteFile, pattern: str, data_dir: Path | None, corpus: str) -> Path:
    if data_dir is None or not data_dir.is_dir():
        return locate(file, data_dir, corpus)
    for folder in (data_dir, data_dir / file.folder):
        if (folder / file.name).is_file():
            return folder / file.name
    raise UserError(
        f"{corpus}: neither {pattern} nor {file.name} is in {data_dir} or its folder "
        f"{file.folder}; download {file.url}"
    )


def _unpacked(file: RemoteFile, pattern: str, data_dir: Path) -> list[Path]:
    for folder in (data_dir / file.folder, data_dir):
        if not folder.is_dir():
            continue
        for name in (pattern, f"{pattern}.gz"):
            if found := sorted(path for path in folder.glob(name) if path.is_file()):
                return found
    return []
