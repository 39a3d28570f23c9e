"""`lmzoo serve`: pages of studies, only for who has the token, only on this machine."""

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.report import render_report
from lmzoo.lab.cli.serve import MOST, RELOAD, build_server
from lmzoo.lab.store.archive import archive_runs
from lmzoo.lab.store.records import DRIVER_LOCK
from tests.cases import cases
from tests.lab.analysis.toy_study import ToyStudy


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    toy = ToyStudy(folder / "toy-captions")
    toy.add_points(
        """
        full:  3.0  3.01  3.02
        carry: 3.5  3.51  3.52
        """
    )
    archive_runs(toy.path, [next(toy.path.glob("*/config.json")).parent.name])
    (toy.path / "user_code").mkdir()
    (folder / "secret").mkdir()
    return folder


@pytest.fixture
def server(runs, no_charts):
    served = build_server(runs, 0, lambda study: render_report(study))
    Thread(target=served.serve_forever, daemon=True).start()
    yield served
    served.shutdown()
    served.server_close()


def get(server, path: str, method: str = "GET", headers: Mapping[str, str | bytes] | None = None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def link(server) -> str:
    # Only who knows the token knows the address.
    return f"/{server.RequestHandlerClass.token}/"


def test_the_pages_of_the_studies_are_shown(server):
    status, headers, overview = get(server, link(server))
    assert status == 200
    assert headers["Refresh"] == "15"
    assert headers["Set-Cookie"] is None
    links = re.findall(r'<a href="([^"]+)"', overview)
    assert links == ["toy-captions"]
    for cell in ("Which path can be cut?", "ended", ">6<"):
        assert cell in overview
    status, headers, page = get(server, link(server) + links[0])
    assert status == 200
    assert headers["Refresh"] is None, "an ended study is not loaded again"
    assert "cut carry" in page


@cases("lab/cli/cases.toml", "refused_requests", "path, hosts")
def test_without_token_and_host_nothing_is_shown(server, path, hosts):
    known = link(server)
    token = server.RequestHandlerClass.token
    port = server.server_port
    values = {"link": known, "short_link": f"{known[:-2]}/", "token": token, "port": port}
    values["host"] = f"127.0.0.1:{port}"
    connection = http.client.HTTPConnection("127.0.0.1", port)
    # Some paths are no ASCII, which http.client refuses.
    connection._encode_request = lambda text: text.encode("latin-1")  # type: ignore[attr-defined]
    connection.putrequest("GET", path.format(**values), skip_host=True)
    for host in hosts:
        connection.putheader("Host", host.format(**values))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 403
    assert b"toy" not in answer.read()
    connection.close()


def test_nothing_can_be_sent(server):
    status, _, _ = get(server, link(server), method="POST")
    assert status == 501


def test_other_machines_cannot_connect(server):
    host, _ = server.server_address
    assert host == "127.0.0.1"


@pytest.fixture(scope="module")
def with_links(runs, tmp_path_factory):
    """The folder also has links to a study elsewhere, and to its `study.json`."""
    elsewhere = ToyStudy(tmp_path_factory.mktemp("other") / "elsewhere").write()
    (runs / "linked").symlink_to(elsewhere)
    (runs / "half").mkdir()
    (runs / "half/study.json").symlink_to(elsewhere / "study.json")


@pytest.mark.usefixtures("with_links")
@pytest.mark.parametrize(
    "name", ["linked", "half", "secret", "..", "%2e%2e/x", "toy-captions/study.json", "x"]
)
def test_only_studies_of_the_folder_are_shown(server, name):
    status, _, _ = get(server, link(server) + name)
    assert status == 404


@pytest.mark.usefixtures("with_links")
def test_only_studies_of_the_folder_are_listed(server):
    _, _, overview = get(server, link(server))
    assert re.findall(r'<a href="([^"]+)"', overview) == ["toy-captions"]


def test_requests_have_limits(server, monkeypatch):
    """Clients that send nothing take no more than their share, and not for long."""
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.3)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as silent:
        assert silent.recv(1) == b"", "it is closed"
    taken = 0
    while server._free.acquire(timeout=0.5):
        taken += 1
    assert taken == MOST
    with pytest.raises(ConnectionError):
        get(server, link(server))
    for _ in range(2):
        server._free.release()
        assert get(server, link(server))[0] == 200
        assert server._free.acquire(timeout=10)  # a request gives its share back


def pages_of(folder, render=lambda study: ""):
    server = build_server(folder, 0, render)
    server.server_close()
    return server.RequestHandlerClass.pages  # type: ignore[attr-defined]


def test_a_study_without_results_says_so_until_it_has_some(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new/study.json").write_text("{}")
    results = iter([UserError("no point is confirmed yet")])

    def render(_: Path) -> str:
        for error in results:
            raise error
        return "the page"

    pages = pages_of(tmp_path, render)
    page, reload = pages.page("new")
    assert "no point is confirmed yet" in page
    assert reload is None
    # A page is kept for a while.
    pages._kept.clear()
    (tmp_path / "new" / DRIVER_LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}")
    assert pages.page("new") == ("the page", RELOAD)


def test_a_page_is_made_once_for_all_who_wait(tmp_path):
    ToyStudy(tmp_path / "slow").write()
    may_end = Event()
    made = []
    pages = pages_of(tmp_path, lambda study: made.append(may_end.wait(60)) or "the page")
    readers = [Thread(target=pages.page, args=("slow",)) for _ in range(2)]
    for reader in readers:
        reader.start()
    # Until both wait for the page.
    time.sleep(0.05)
    may_end.set()
    for reader in readers:
        reader.join(60)
    assert pages.page("slow") == ("the page", None)
    assert made == [True]


def test_only_a_sweep_that_lives_is_shown_as_running(tmp_path):
    code = "import os; print(os.getpid())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True)
    host = socket.gethostname()
    for name, owner in (
        ("running", f"process {os.getpid()} on {host}"),
        ("stopped", f"process {int(ended.stdout)} on {host}"),
        ("elsewhere", f"process {int(ended.stdout)} on another{host}"),
    ):
        toy = ToyStudy(tmp_path / name)
        toy.study_json["points"] = [{"id": "a", "label": "a"}]
        toy.write().joinpath(DRIVER_LOCK).write_text(owner)
    overview = pages_of(tmp_path).overview()
    states = dict(re.findall(r'href="(\w+)".*?>(\w+), 0 of 1 points tuned', overview))
    assert states == {"running": "running", "stopped": "stopped", "elsewhere": "running"}


def test_the_newest_study_is_first(tmp_path):
    for name, age in (("old", 100), ("new", 0), ("middle", 50)):
        study = ToyStudy(tmp_path / name).write()
        for path in (study / "study.json", study):
            os.utime(path, (1e9 - age, 1e9 - age))
    page = pages_of(tmp_path).overview()
    assert re.findall(r'href="(\w+)"', page) == ["new", "middle", "old"]
