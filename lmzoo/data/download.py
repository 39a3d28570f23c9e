"""Locate data files that are not part of this repository because of their licences.

    locate(file, data_dir, corpus)               the user's folder if given, else downloaded
    read_published(file, pattern, ...)           the text of an archive, or of its unpacked files

The download cache is the folder LMZOO_CACHE, by default `pooch.os_cache("lmzoo")`. The checksum of
a download is checked, whenever the file is opened. A file gets its name after the check, so nothing
is half-written. Files in the user's folder are not checked, as they may be repacked or shortened on
purpose; the corpus fingerprint in every record distinguishes them. They are in DIR or DIR/FOLDER,
plain or .gz; of an archive, the files that it contains may be there instead. Archives are read
without unpacking them on disk.
"""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError, disk_reason
from lmzoo.data.files import read_bytes, read_members

TIMEOUT = (10, 60)
"""Seconds to connect, and between two parts of the response."""
PART = 2**20
"""Bytes of a response that are in memory at a time."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set, its URL and its checksum."""

    folder: str
    """Subfolder of the cache and, optionally, of the user's folder."""
    url: str
    checksum: str | None = None
    """Its SHA-256, or `md5:...` where no SHA-256 is published."""

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


FILES: dict[str, RemoteFile] = {}
for _name, _fields in tomllib.loads(Path(__file__).with_name("downloads.toml").read_text()).items():
    FILES[_name] = RemoteFile(**_fields)
"""Files by name, or by release."""


def cache_dir() -> Path:
    """Return the folder of downloads."""
    folder = os.environ.get("LMZOO_CACHE", "")
    if not folder:
        import pooch

        return pooch.os_cache("lmzoo")
    return Path(folder).expanduser()


def locate(file: RemoteFile, data_dir: Path | None, corpus: str, member: str = "") -> Path:
    """Return the local path of the file, plain or .gz; download it if `data_dir` is None.

    Args:
        file: The file.
        data_dir: The user's folder.
        corpus: Name of the corpus, for error messages.
        member: The files for which an archive is read, for error messages.

    A `UserError` says that the file is not in `data_dir`, or that its download fails.
    """
    if data_dir is None:
        return _download(file, corpus)
    plain = file.name.removesuffix(".gz")
    if not data_dir.is_dir():
        raise UserError(
            f"{corpus}: folder {data_dir} does not exist; --data-dir must contain {plain}[.gz]"
        )
    names = [f"{plain}.gz", plain]
    if member:
        # An archive is looked for as it is published; its files may be plain or .gz.
        names = [file.name]
    found = _in_folder(file, names, data_dir)
    if found:
        return found[0]
    if member:
        missing = f"neither {member} nor {file.name} is"
    else:
        missing = f"no {plain}[.gz]"
    raise UserError(
        f"{corpus}: {missing} in {data_dir} or its folder {file.folder}; download {file.url}"
    )


def _in_folder(file: RemoteFile, patterns: list[str], data_dir: Path) -> list[Path]:
    """Return the files of the first pattern of which DIR or DIR/FOLDER has any, in order."""
    for folder in (data_dir, data_dir / file.folder):
        for pattern in patterns:
            found = sorted(path for path in folder.glob(pattern) if path.is_file())
            if found:
                return found
    return []


def _download(file: RemoteFile, corpus: str) -> Path:
    remedy = f"pass --data-dir DIR with {file.name}"
    if file.checksum is None:
        raise UserError(
            f"{corpus}: the checksum of {file.name} is unknown, so it is not downloaded; "
            f"download {file.url} yourself and {remedy}"
        )
    import pooch
    import requests

    cache = cache_dir() / file.folder
    try:
        # Checked whenever the file is opened: a file of the cache may be damaged later.
        path = pooch.retrieve(
            file.url,
            known_hash=file.checksum,
            fname=file.name,
            path=cache,
            downloader=_stream,  # type: ignore[arg-type]  pooch declares another type
        )
        return Path(path)
    except requests.HTTPError as error:
        status = str(error).partition(" for url")[0]  # "404 Client Error: Not Found"
        said = f"{file.url} responds {status}; retry later"
    except requests.RequestException as error:
        said = f"cannot download {file.url} ({type(error).__name__}); check the network and retry"
    except OSError as error:
        said = f"cannot write to {cache}: {disk_reason(error)}; set LMZOO_CACHE"
    except ValueError:  # pooch raises this if the hash differs
        said = (
            f"{file.url} does not have the checksum {file.checksum}; the file is damaged or "
            "changed: retry"
        )
    raise UserError(f"{corpus}: {said}, or {remedy}")


def _stream(url: str, output_file: Any, pooch: Any):
    """Write a response to the path `output_file` in parts; pooch calls this.

    The library's own downloader would keep the whole file in memory, or leave the connection of an
    error response open.
    """
    del pooch
    import requests

    with requests.get(url, stream=True, timeout=TIMEOUT) as response:
        response.raise_for_status()
        with Path(output_file).open("wb") as file:
            for part in response.iter_content(PART):
                file.write(part)


def read_published(file: RemoteFile, pattern: str, data_dir: Path | None, corpus: str) -> bytes:
    """Return the text of the files in an archive whose names end in `pattern`, in their order.

    A `UserError` says that they are missing or broken, or that their download fails.
    """
    found = []
    if data_dir is not None:
        found = _in_folder(file, [pattern, f"{pattern}.gz"], data_dir)
    texts = [read_bytes(path) for path in found]
    if not texts:
        path = locate(file, data_dir, corpus, pattern)
        texts = list(read_members(path, pattern).values())
        if not texts:
            raise UserError(f"{corpus}: {path} has no {pattern}; download {file.url}, which has it")
    # One newline between two files, whether or not the first ends with one.
    ended = [text.removesuffix(b"\n") for text in texts[:-1]]
    return b"\n".join(ended + [texts[-1]])
