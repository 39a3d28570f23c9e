"""Downloads from a local server: complete, damaged, missing, truncated or refused files."""

import gc
import hashlib
import itertools
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lmzoo.data.download import RemoteFile, locate
from tests.user_errors import raises_user_error

CONTENT = b"two men play in the snow .\n"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object):
        self.server.requests.append(self.path)  # type: ignore[attr-defined]

    def do_GET(self):
        if self.path != "/short.en":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        # Fewer bytes than were announced.
        self.wfile.write(CONTENT[:5])
        return None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "train.en").write_bytes(CONTENT)
    handler = partial(Handler, directory=str(tmp_path / "www"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
    gc.collect()  # a socket that a failed download leaves open warns here, in the right test


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    # The server is on this machine.
    monkeypatch.setenv("NO_PROXY", "*")
    return tmp_path / "cache"


def remote(port: int, name: str = "train.en", content: bytes = CONTENT) -> RemoteFile:
    digest = hashlib.sha256(content).hexdigest()
    return RemoteFile("toy", f"http://127.0.0.1:{port}/{name}", digest)


def test_a_file_is_downloaded_once(server, cache):
    file = remote(server.server_port)
    path = locate(file, None, "toy")
    assert path == cache / "toy" / "train.en"
    assert path.read_bytes() == CONTENT
    assert locate(file, None, "toy") == path
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_published_checksum_is_checked(server, cache, kind):
    url = remote(server.server_port).url

    def with_checksum_of(content: bytes) -> RemoteFile:
        digest = hashlib.new(kind, content).hexdigest()
        return RemoteFile("toy", url, f"{kind}:{digest}")

    good = with_checksum_of(CONTENT)
    wrong = with_checksum_of(b"other")
    assert locate(good, None, "toy").read_bytes() == CONTENT
    (cache / "toy" / "train.en").unlink()
    with raises_user_error("toy", f"checksum {wrong.checksum}", "--data-dir DIR with train.en"):
        locate(wrong, None, "toy")
    assert list((cache / "toy").iterdir()) == []


def test_an_interrupted_download_leaves_nothing(server, cache, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("requests.Response.iter_content", interrupt)
    with pytest.raises(KeyboardInterrupt):
        locate(remote(server.server_port), None, "toy")
    assert list((cache / "toy").iterdir()) == []


def test_what_cannot_be_downloaded_is_one_line(server, cache):
    with raises_user_error("toy", "/nowhere.en", "404", "--data-dir DIR with nowhere.en"):
        locate(remote(server.server_port, "nowhere.en"), None, "toy")
    (cache / "toy").rmdir()
    cache.rmdir()
    cache.write_text("a file where the folder should be")
    with raises_user_error("toy", cache, "LMZOO_CACHE"):
        locate(remote(server.server_port), None, "toy")
    requests = len(server.requests)
    file = RemoteFile("toy", remote(server.server_port).url)
    with raises_user_error("toy", "checksum of train.en", file.url, "--data-dir"):
        locate(file, None, "toy")
    assert len(server.requests) == requests


def test_the_users_folder_may_have_the_file_plain_or_gzipped(tmp_path):
    names = ("train.en", "train.en.gz")
    for where, name, published in itertools.product((".", "toy"), names, names):
        path = tmp_path / where / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(CONTENT)
        assert locate(remote(1, published), tmp_path, "toy") == path
        path.unlink()


def test_nothing_is_downloaded_if_there_is_a_users_folder(server, tmp_path):
    (tmp_path / "mine").mkdir()
    with raises_user_error("toy", "train.en", tmp_path / "mine"):
        locate(remote(server.server_port), tmp_path / "mine", "toy")
    with raises_user_error("toy", "does not exist", tmp_path / "none"):
        locate(remote(server.server_port), tmp_path / "none", "toy")
    assert server.requests == []
