"""Files that licences keep out of this repository: fetched once, checked, kept in a cache.

locate(file, data_dir, corpus)   in the user's own folder if one is given, else downloaded

The cache is `pooch.os_cache("lmzoo")`, or the folder that LMZOO_CACHE names. Downloads
are held to their SHA-256. Files in the user's folder are not: they may be re-packed or
shortened on purpose, and a corpus's fingerprint tells them apart in every record.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from lmzoo.errors import UserError

TIMEOUT = (10, 60)
"""Seconds to connect, and between two pieces of the answer."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set, its address, and what it must hold."""

    folder: str
    """Subfolder of the cache; also tried below the user's own folder."""
    url: str
    sha256: str | None
    """None if we never held the file: then it is not downloaded."""

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


def cache_dir() -> Path:
    """Where downloads are kept."""
    import pooch

    return Path(os.environ.get("LMZOO_CACHE") or pooch.os_cache("lmzoo")).expanduser()


def locate(file: RemoteFile, data_dir: Path | None, corpus: str) -> Path:
    """The file on this machine, plain or .gz.

    Raises:
        UserError: it is neither in `data_dir` nor to be had from its address.
    """
    return _download(file, corpus) if data_dir is None else _in_folder(file, data_dir, corpus)


def _in_folder(file: RemoteFile, data_dir: Path, corpus: str) -> Path:
    plain = file.name.removesuffix(".gz")
    if not data_dir.is_dir():
        raise UserError(f"{corpus}: no folder {data_dir}; --data-dir must hold {plain}[.gz]")
    for folder in (data_dir, data_dir / file.folder):
        for name in (f"{plain}.gz", plain):
            if (folder / name).exists():
                return folder / name
    raise UserError(
        f"{corpus}: no {plain}[.gz] in {data_dir} or its folder {file.folder}; fetch {file.url}"
    )


def _download(file: RemoteFile, corpus: str) -> Path:
    remedy = f"pass --data-dir DIR with {file.name}"
    if file.sha256 is None:
        raise UserError(
            f"{corpus}: the checksum of {file.name} is not known, so it is not downloaded; "
            f"fetch {file.url} yourself and {remedy}"
        )
    import pooch
    import requests

    cache = cache_dir() / file.folder
    # Without stream=False an answer such as 404 would leave its connection open.
    fetch = pooch.HTTPDownloader(timeout=TIMEOUT, stream=False)
    try:
        fetched = pooch.retrieve(
            file.url,
            known_hash=f"sha256:{file.sha256}",
            fname=file.name,
            path=cache,
            downloader=fetch,  # type: ignore[arg-type]  pooch's own class
        )
    except requests.HTTPError as error:
        said = str(error).partition(" for url")[0]  # "404 Client Error: Not Found"
        raise UserError(f"{corpus}: {file.url} answered {said}; {remedy}") from None
    except requests.RequestException as error:
        reason = type(error).__name__
        raise UserError(
            f"{corpus}: cannot fetch {file.url} ({reason}): no network? retry, or {remedy}"
        ) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(
            f"{corpus}: cannot write to {cache}: {reason}; set LMZOO_CACHE, or {remedy}"
        ) from None
    except ValueError:  # pooch: the hash differs
        raise UserError(
            f"{corpus}: {file.url} does not have the SHA-256 {file.sha256}: "
            f"damaged or changed; retry, or {remedy}"
        ) from None
    return Path(fetched)
