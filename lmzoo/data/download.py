"""Locate data files that are not part of this repository because of their licences.

    locate(file, data_dir, corpus)   in the user's folder if there is one, else downloaded

The download cache is the folder LMZOO_CACHE, by default `pooch.os_cache("lmzoo")`. The SHA-256 of
a download is checked. Files in the user's folder are not checked, as they may be repacked or
shortened on purpose; the corpus fingerprint in every record distinguishes them.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from lmzoo.errors import UserError

TIMEOUT = (10, 60)
"""Seconds to connect, and between two parts of the response."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set, its URL and its checksum."""

    folder: str
    """Subfolder of the cache and, optionally, of the user's folder."""
    url: str
    sha256: str | None
    """None if the checksum is unknown; the file is then not downloaded."""

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]


def cache_dir() -> Path:
    """Return the folder of downloads."""
    import pooch

    return Path(os.environ.get("LMZOO_CACHE") or pooch.os_cache("lmzoo")).expanduser()


def locate(file: RemoteFile, data_dir: Path | None, corpus: str) -> Path:
    """Return the local path of the file, plain or .gz; download it if `data_dir` is None.

    Raises:
        UserError: The file is not in `data_dir`, or its download fails.
    """
    return _download(file, corpus) if data_dir is None else _in_folder(file, data_dir, corpus)


def _in_folder(file: RemoteFile, data_dir: Path, corpus: str) -> Path:
    plain = file.name.removesuffix(".gz")
    if not data_dir.is_dir():
        raise UserError(
            f"{corpus}: folder {data_dir} does not exist; --data-dir must contain {plain}[.gz]"
        )
    for folder in (data_dir, data_dir / file.folder):
        for name in (f"{plain}.gz", plain):
            if (folder / name).exists():
                return folder / name
    raise UserError(
        f"{corpus}: no {plain}[.gz] in {data_dir} or its folder {file.folder}; download {file.url}"
    )


def _download(file: RemoteFile, corpus: str) -> Path:
    remedy = f"pass --data-dir DIR with {file.name}"
    if file.sha256 is None:
        raise UserError(
            f"{corpus}: the checksum of {file.name} is unknown, so it is not downloaded; "
            f"download {file.url} yourself and {remedy}"
        )
    import pooch
    import requests

    cache = cache_dir() / file.folder
    # With stream=True, an error response such as 404 would leave its connection open.
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT, stream=False)
    try:
        path = pooch.retrieve(
            file.url,
            known_hash=f"sha256:{file.sha256}",
            fname=file.name,
            path=cache,
            downloader=downloader,  # type: ignore[arg-type]  a class of pooch
        )
    except requests.HTTPError as error:
        status = str(error).partition(" for url")[0]  # "404 Client Error: Not Found"
        raise UserError(f"{corpus}: {file.url} responds {status}; {remedy}") from None
    except requests.RequestException as error:
        reason = type(error).__name__
        raise UserError(
            f"{corpus}: cannot download {file.url} ({reason}); "
            f"check the network and retry, or {remedy}"
        ) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(
            f"{corpus}: cannot write to {cache}: {reason}; set LMZOO_CACHE, or {remedy}"
        ) from None
    except ValueError:  # pooch raises this if the hash differs
        raise UserError(
            f"{corpus}: {file.url} does not have the SHA-256 {file.sha256}; "
            f"the file is damaged or changed: retry, or {remedy}"
        ) from None
    return Path(path)
