"""Downloads, against a server of our own: good, damaged, missing, cut short, refused."""

import gc
import hashlib
import socket
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lmzoo.data.download import RemoteFile, cache_dir, locate
from tests.data.refused import refused

CONTENT = b"two men play in the snow .\n"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        if self.path != "/short.en":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:5])
        return None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "train.en").write_bytes(CONTENT)
    handler = partial(Handler, directory=str(tmp_path / "www"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
    gc.collect()  # a socket left open by a failed download warns here, in its own test


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LMZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    return tmp_path / "cache"


def remote(port: int, name: str = "train.en", content: bytes = CONTENT) -> RemoteFile:
    digest = hashlib.sha256(content).hexdigest()
    return RemoteFile("toy", f"http://127.0.0.1:{port}/{name}", digest)


def test_a_file_is_fetched_once(server, cache):
    file = remote(server.server_port)
    path = locate(file, None, "toy")
    assert path == cache / "toy" / "train.en"
    assert path.read_bytes() == CONTENT
    assert locate(file, None, "toy") == path
    assert len(server.asked) == 1


def test_a_damaged_cache_is_fetched_again(server):
    file = remote(server.server_port)
    locate(file, None, "toy").write_bytes(b"damaged")
    assert locate(file, None, "toy").read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_not_kept(server, cache):
    with refused("toy", "SHA-256", "--data-dir DIR with train.en"):
        locate(remote(server.server_port, content=b"other"), None, "toy")
    assert list((cache / "toy").iterdir()) == []


def test_a_missing_file_is_named(server):
    with refused("toy", "/nowhere.en", "404", "--data-dir DIR with nowhere.en"):
        locate(remote(server.server_port, "nowhere.en"), None, "toy")


def test_an_answer_cut_short_is_refused_and_not_kept(server, cache):
    with refused("toy", "/short.en", "--data-dir"):
        locate(remote(server.server_port, "short.en"), None, "toy")
    assert list((cache / "toy").iterdir()) == []


def test_a_refused_connection_asks_after_the_network():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with refused("toy", "no network?", "--data-dir DIR with train.en"):
        locate(remote(port), None, "toy")


def test_a_cache_that_cannot_be_written_is_named(server, cache):
    cache.write_text("a file where the folder should be")
    with refused("toy", cache, "LMZOO_CACHE"):
        locate(remote(server.server_port), None, "toy")


def test_a_file_of_unknown_checksum_is_not_downloaded(server):
    file = RemoteFile("toy", f"http://127.0.0.1:{server.server_port}/train.en", None)
    with refused("toy", "checksum of train.en", file.url, "--data-dir"):
        locate(file, None, "toy")
    assert server.asked == []


@pytest.mark.parametrize("where", [".", "toy"])
@pytest.mark.parametrize("name", ["train.en", "train.en.gz"])
@pytest.mark.parametrize("published", ["train.en", "train.en.gz"])
def test_the_users_folder_may_hold_it_plain_or_zipped(tmp_path, where, name, published):
    path = tmp_path / where / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(CONTENT)
    assert locate(remote(1, published), tmp_path, "toy") == path


def test_the_users_folder_is_never_left_for_the_network(server, tmp_path):
    (tmp_path / "mine").mkdir()
    with refused("toy", "train.en", tmp_path / "mine"):
        locate(remote(server.server_port), tmp_path / "mine", "toy")
    with refused("toy", "no folder", tmp_path / "none"):
        locate(remote(server.server_port), tmp_path / "none", "toy")
    assert server.asked == []


def test_the_cache_has_a_default(monkeypatch):
    monkeypatch.delenv("LMZOO_CACHE")
    assert "lmzoo" in str(cache_dir())
