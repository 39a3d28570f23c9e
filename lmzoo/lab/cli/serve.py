"""`lmzoo serve`: the pages of all studies in a folder, in a browser, also while a sweep runs.

The server listens on loopback only. Other accounts of the machine can reach loopback, and so can
web pages in the same browser, so every path begins with a token, which is drawn at each start. A
cookie would be sent to the servers at all ports of the host. A request for another host name is
refused, because a foreign name may resolve to loopback (DNS rebinding). A page shows what is in the
folder, and no study to which a link leads.
"""

import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote

import typer

from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo
from lmzoo.lab.store.archive import archives, run_folders
from lmzoo.lab.store.records import RUNS, STUDY, is_running, is_study, list_studies, read_json

RELOAD = 15
"""Seconds after which a browser loads a page again."""
BUSY = 0.1
"""Largest share of one core that the pages of a running sweep take."""
MOST = 32
"""Requests at the same time."""
SECONDS = 10.0
"""How long a request may wait for its next bytes."""


class Pages:
    """The pages. A page is kept for a time that grows with the time that its rendering took."""

    def __init__(self, runs: Path, render: Callable[[Path], str]):
        self._runs = runs
        self._render = render
        self._kept = dict[str, tuple[float, str, int | None]]()
        """Study -> the time until which its page is kept, the page, when to load it again."""
        self._lock = Lock()

    def overview(self) -> str:
        """Return a table of the studies, the newest first."""
        from lmzoo.lab.analysis.report.html import html_page, macro

        found = sorted(self._studies(), key=lambda study: (_changed(study), study.name))
        rows = [_facts(study) for study in reversed(found)]
        return html_page("Studies", macro("studies", self._runs, rows), [])

    def page(self, name: str) -> tuple[str, int | None] | None:
        """Return the page of a study, and when to load it again; None if there is no such study.

        The page of a study that no sweep trains stays: its reader is not disturbed.
        """
        own = {study.name: study for study in self._studies()}
        if name not in own:
            return None
        with self._lock:  # a second request waits for the page, and does not make it again
            until = self._kept.get(name, (0.0,))[0]
            if time.monotonic() >= until:
                self._kept[name] = self._made(own[name])
            return self._kept[name][1:]

    def _studies(self) -> list[Path]:
        root = self._runs.resolve()
        found = list_studies(self._runs)
        # A link may lead to a study that the user did not mean to show.
        return [study for study in found if (study / STUDY).resolve().parent.parent == root]

    def _made(self, study: Path) -> tuple[float, str, int | None]:
        from lmzoo.lab.analysis.report.html import html_page, paragraphs

        begin = time.monotonic()
        # Before the page is made: a sweep that ends meanwhile has results that the page lacks.
        reload = None
        if is_running(study):
            reload = RELOAD
        try:
            page = self._render(study)
        except UserError as error:
            page = html_page(study.name, paragraphs([f"no results yet: {error}"]), [])
        end = time.monotonic()
        return end + (end - begin) / BUSY, page, reload


def _changed(study: Path) -> float:
    """Return when a run began, or a decision was made."""
    return max(path.stat().st_mtime for path in (study, study / STUDY))


def _facts(study: Path) -> dict[str, str]:
    """Return what the overview says of a study."""
    known = read_json(study / STUDY)
    if not isinstance(known, dict) or not is_study(known):
        known = {}
    runs = run_folders(study)
    for archive in archives(study):
        runs.update(archive.run_names)
    tuned = len(known.get("chosen", ()))
    points = len(known.get("points", ()))
    state = "stopped"
    if is_running(study):
        state = "running"
    elif tuned == points:
        state = "ended"
    if tuned < points:
        state += f", {tuned} of {points} points tuned"
    return {
        "name": study.name,
        "question": known.get("question", ""),
        "state": state,
        "runs": f"{len(runs):,}",
        "date": time.strftime("%Y-%m-%d %H:%M", time.localtime(_changed(study))),
    }


class Handler(BaseHTTPRequestHandler):
    """Answers GET; every other method gets 501."""

    timeout = SECONDS
    pages: ClassVar[Pages]
    token: ClassVar[str]

    def do_GET(self):
        """Send the overview or the page of a study."""
        port = self.connection.getsockname()[1]
        path, _, _ = self.path.partition("?")
        given, _, rest = path.removeprefix("/").partition("/")
        name = unquote(rest)
        # Exactly one, which resolves here: a foreign name may lead here, too.
        hosts = self.headers.get_all("Host")
        if hosts not in ([f"127.0.0.1:{port}"], [f"localhost:{port}"]):
            self._send(HTTPStatus.FORBIDDEN, "another host name")
        # In constant time, which does not tell how much of a token is right.
        elif not secrets.compare_digest(given.encode(), self.token.encode()):
            self._send(HTTPStatus.FORBIDDEN, "open the link that lmzoo serve printed")
        elif not name:
            self._send(HTTPStatus.OK, self.pages.overview(), RELOAD)
        else:
            self._send_page(name)

    def _send_page(self, name: str):
        found = self.pages.page(name)
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, "no such study")
        else:
            page, reload = found
            self._send(HTTPStatus.OK, page, reload)

    def _send(self, status: HTTPStatus, page: str, reload: int | None = None):
        body = page.encode()
        self.send_response(status)
        # A browser reloads a page by itself, so that the file of `lmzoo report` has no clock.
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            # The address of the page has the token.
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
        if reload is not None:
            headers["Refresh"] = str(reload)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object):
        """Print nothing: a line of the log would show the token."""


class Server(ThreadingHTTPServer):
    """Answers at most `MOST` requests at the same time; it closes further ones."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self._free = BoundedSemaphore(MOST)

    def process_request(self, request: Any, client_address: Any):
        # Clients that send nothing take no more than their share.
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def build_server(runs: Path, port: int, render: Callable[[Path], str]) -> ThreadingHTTPServer:
    """Return the server of the pages, with a token of its own.

    A `UserError` says that the folder is not there, or that the port is in use.
    """
    if not runs.is_dir():
        raise UserError(f"{runs} is not a folder; give the folder of the runs, such as runs")
    own = {"pages": Pages(runs, render), "token": secrets.token_urlsafe(24)}
    try:
        return Server(("127.0.0.1", port), type("OwnHandler", (Handler,), own))
    except OSError as error:
        raise UserError(f"port {port} cannot be opened: {error}; choose another --port") from error


def serve(
    runs: Annotated[Path, typer.Argument(help="Folder in which studies are found.")] = RUNS,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: a free one.")] = 0,
):  # fmt: skip
    """Show the pages of all studies in a browser, also while a sweep runs. Ctrl-C ends it.

    The pages are those of `lmzoo report`; a browser reloads the page of a running sweep every 15
    seconds. The server answers only browsers on this machine that have the printed link. From
    another machine: ssh -L PORT:127.0.0.1:PORT HOST.
    """
    from lmzoo.lab.analysis.report import render_report

    server = build_server(runs, port, lambda study: render_report(study))
    token = server.RequestHandlerClass.token  # type: ignore[attr-defined]
    echo(f"http://127.0.0.1:{server.server_port}/{token}/")
    with server:
        server.serve_forever()
