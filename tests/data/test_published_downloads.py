"""Published corpora from a local server, with planted faults: one line, nothing half-written."""

import dataclasses
import gc
import hashlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from lmzoo.data import babylm, ptb, text8, tinystories, wikitext
from lmzoo.data.corpus import open_corpus
from tests.cli.run_lmzoo import run_lmzoo
from tests.data.published_files import ARCHIVES, FILES, write_published
from tests.user_errors import raises_user_error

DOWNLOADS = {
    corpus: [ARCHIVES[corpus]] if corpus in ARCHIVES else list(FILES[corpus]) for corpus in FILES
}


class Handler(SimpleHTTPRequestHandler):
    """Serves files; those in `truncated` end early, although their length is announced."""

    truncated: ClassVar[set[str]] = set()

    def log_message(self, *args: object) -> None:
        pass

    def copyfile(self, source, outputfile) -> None:
        content = source.read()
        short = self.path.lstrip("/") in self.truncated
        outputfile.write(content[: len(content) // 2] if short else content)


@pytest.fixture
def www(tmp_path, monkeypatch) -> Iterator[Path]:
    """Folder of the published files, served in place of their publishers."""
    folder = tmp_path / "www"
    folder.mkdir()
    for corpus in FILES:
        write_published(folder, corpus)
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(Handler, "truncated", set())
    handler = partial(Handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        publish_here(monkeypatch, f"http://127.0.0.1:{server.server_port}/", folder)
        yield folder
        server.shutdown()
        thread.join()
    gc.collect()  # a socket that a failed download leaves open warns here, in the right test


def publish_here(monkeypatch, url: str, folder: Path) -> None:
    """Replace the publishers' addresses and checksums by those of the folder."""

    def digest(name: str, algorithm: str = "sha256") -> str:
        return hashlib.new(algorithm, (folder / name).read_bytes()).hexdigest()

    for module in (wikitext, ptb, tinystories):
        monkeypatch.setattr(module, "URL", url)
    for module, name in ((text8, "TEXT8"), (text8, "ENWIK8"), (babylm, "FILE")):
        file = getattr(module, name)
        here = dataclasses.replace(file, url=f"{url}{file.name}")
        if file.sha256:
            here = dataclasses.replace(here, sha256=digest(file.name))
        monkeypatch.setattr(module, name, here)
    served = {path.name for path in folder.iterdir()}
    for module in (wikitext, tinystories):
        known = {
            name: digest(name) if name in served else sha for name, sha in module.SHA256.items()
        }
        monkeypatch.setattr(module, "SHA256", known)
    monkeypatch.setattr(ptb, "MD5", {name: digest(name, "md5") for name in ptb.MD5})


def written(www: Path) -> set[str]:
    return {path.name for path in (www.parent / "cache").rglob("*") if path.is_file()}


def load(corpus, data_dir=None):
    return open_corpus({"name": corpus, "block": 8}, data_dir)


@pytest.mark.parametrize("corpus", FILES)
def test_a_download_is_what_a_folder_gives(www, corpus):
    assert load(corpus).fingerprint == load(corpus, www).fingerprint
    records = {f"{name}.sha256" for name in DOWNLOADS[corpus] if corpus == "babylm"}
    assert written(www) == {*DOWNLOADS[corpus], *records}
    for path in www.iterdir():
        path.unlink()
    load(corpus)  # without the server


@pytest.mark.parametrize("corpus", FILES)
def test_a_truncated_download_is_named_and_leaves_nothing(www, corpus):
    name = DOWNLOADS[corpus][-1]
    Handler.truncated.add(name)
    with raises_user_error(corpus, "cannot download http://127.0.0.1", name, "--data-dir DIR"):
        load(corpus)
    assert written(www) == set(DOWNLOADS[corpus][:-1])


@pytest.mark.parametrize("corpus", [name for name in FILES if name != "babylm"])
def test_a_wrong_checksum_is_named_and_leaves_nothing(www, corpus):
    name = DOWNLOADS[corpus][-1]
    (www / name).write_bytes((www / name).read_bytes()[:-1] + b"?")
    kind = "MD5" if corpus == "ptb" else "SHA-256"
    with raises_user_error(corpus, name, f"does not have the {kind}", "damaged or changed"):
        load(corpus)
    assert written(www) == set(DOWNLOADS[corpus][:-1])


@pytest.mark.parametrize("corpus", FILES)
def test_a_missing_download_is_named(www, corpus):
    name = DOWNLOADS[corpus][0]
    (www / name).unlink()
    with raises_user_error(corpus, name, "404", f"--data-dir DIR with {name}"):
        load(corpus)
    assert written(www) == set()


@pytest.mark.parametrize("fault", ["truncated", "checksum", "missing", "no package"])
def test_the_command_prints_one_line_and_exits_with_2(www, fault, capsys, monkeypatch):
    corpus = "babylm" if fault == "no package" else "text8"
    name = ARCHIVES[corpus]
    if fault == "truncated":
        Handler.truncated.add(name)
    elif fault == "checksum":
        (www / name).write_bytes(b"PK")
    elif fault == "missing":
        (www / name).unlink()
    else:
        monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    code = run_lmzoo("train", "gru", "--corpus", corpus, "--out", www.parent / "runs")
    error = capsys.readouterr().err
    assert code == 2
    assert len(error.strip().splitlines()) == 1
    assert corpus in error or "pip install tokenizers" in error
    assert not (www.parent / "runs").exists()


def test_the_published_checksums_are_well_formed():
    files = [text8.TEXT8, text8.ENWIK8]
    for digest in [
        *wikitext.SHA256.values(),
        *tinystories.SHA256.values(),
        *(f.sha256 for f in files),
    ]:
        assert len(bytes.fromhex(digest)) == 32
    assert all(len(bytes.fromhex(digest)) == 16 for digest in ptb.MD5.values())
    assert babylm.FILE.checksum is None
    assert babylm.FILE.first_use
