"""`lmzoo serve`: the pages of all studies in a folder, in a browser, also while a sweep runs.

The server listens on loopback only. Other accounts of the machine can reach loopback, and so can
web pages in the same browser, so every path begins with a token, which is drawn at each start. A
cookie would be sent to the servers at all ports of the host. A request for another host name is
refused, because a foreign name may resolve to loopback (DNS rebinding). A page shows what is in the
folder, and no study to which a link leads.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread
from typing import Annotated, Any, ClassVar
from urllib.parse import quote, unquote

import typer

from lmzoo.base.errors import UserError
from lmzoo.base.printed import duration
from lmzoo.base.streams import echo
from lmzoo.lab.store.archive import archives, run_folders
from lmzoo.lab.store.local import file_mark
from lmzoo.lab.store.records import RUNS, STUDY, is_running, is_study, list_studies, read_json

RELOAD, SOON = 15, 2
"""Seconds after which a browser loads a page again, and one that is being made."""
PATIENCE = 0.5
"""Seconds for which a request waits for a page."""
BUSY = 0.1
"""Largest share of one core that the pages of a running sweep take."""
MOST, SECONDS = 32, 10.0
"""Requests at the same time, and how long one may wait for its next bytes."""
COLUMNS = ("study", "question", "answer", "state", "runs", "trained", "last change")


Mark = tuple[tuple[int, ...], ...]


def _mark(study: Path) -> Mark:
    """Return what changes when a run begins, or a decision is made; no clock is read."""
    return tuple(map(file_mark, (study, study / STUDY)))


class Pages:
    """The pages. A page is kept for a time that grows with the time that its rendering took."""

    def __init__(self, runs: Path, render: Callable[[Path], str]) -> None:
        self._runs, self._render = runs, render
        self._kept: dict[str, tuple[float, str, int | None]] = {}
        """Study -> the time until which its page is kept, the page, when to load it again."""
        self._threads: dict[str, Thread] = {}
        """Study -> the thread that makes its page; "" -> that of the answers."""
        self._answers: dict[str, tuple[Mark, str, str]] = {}
        """Study -> what its files were, the answer, the time of training."""
        self._due: dict[str, float] = {}
        """Study -> when its answer may be computed again."""
        self._lock = Lock()

    def overview(self) -> str:
        """Return a table of the studies, the newest first.

        Answers are computed by a thread of its own, one after the other: a page does not wait.
        """
        from lmzoo.lab.analysis.report.html import html_page

        found = [  # a run began, or a decision was made
            (max(path.stat().st_mtime for path in (study, study / STUDY)), study, _mark(study))
            for study in self._studies()
        ]
        found.sort(reverse=True, key=lambda item: (item[0], item[1].name))
        if not found:
            return html_page("Studies", f"<p>{escape(str(self._runs))} has no study yet</p>", [])
        head = "".join(f'<th class="text">{name}</th>' for name in COLUMNS)
        rows = "".join(self._row(at, study) for at, study, _ in found)
        self._start("", lambda: self._answer([own[1:] for own in found]))
        table = f'<table class="sortable" aria-label="studies"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        return html_page("Studies", f'<div class="scroll">{table}</div>', [])

    def _studies(self) -> list[Path]:
        root = self._runs.resolve()
        found = list_studies(self._runs)
        return [study for study in found if (study / STUDY).resolve().parent.parent == root]

    def _start(self, name: str, work: Callable[[], None]) -> Thread:
        """Return the thread that does some work; there is one at a time."""
        with self._lock:
            if name not in self._threads or not self._threads[name].is_alive():
                self._threads[name] = Thread(target=work, daemon=True)
                self._threads[name].start()
            return self._threads[name]

    def _row(self, at: float, study: Path) -> str:
        known = read_json(study / STUDY)
        if not isinstance(known, dict) or not is_study(known):
            known = {}
        runs = len(run_folders(study).union(*(a.run_names for a in archives(study))))
        tuned, points = len(known.get("chosen", ())), len(known.get("points", ()))
        state = "running" if is_running(study) else "ended" if tuned == points else "stopped"
        if tuned < points:
            state += f", {tuned} of {points} points tuned"
        _, answer, trained = self._answers.get(study.name, ((), "not computed yet", ""))
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
        link = f'<a href="{quote(study.name, safe="")}">{escape(study.name)}</a>'
        texts = (known.get("question", ""), answer, state, f"{runs:,}", trained, date)
        cells = "".join(f'<td class="text">{text}</td>' for text in [link, *map(escape, texts)])
        return f"<tr>{cells}</tr>"

    def _answer(self, found: Sequence[tuple[Path, Mark]]) -> None:
        """Compute the answers of the studies that have changed since the last ones."""
        from lmzoo.lab.analysis.load import load_study
        from lmzoo.lab.analysis.ranking_table import study_ranking

        for study, mark in found:
            begin, trained = time.monotonic(), ""
            is_known = mark == self._answers.get(study.name, ((),))[0]
            waits = is_running(study) and begin < self._due.get(study.name, begin)
            if is_known or waits:
                continue
            try:
                folder = load_study(study)
                text = " ".join(study_ranking(folder).lead) or "no verdict"
                seconds = folder.events.select("seconds").sum().collect().item()
                trained = duration(seconds or 0.0)
            except UserError as error:
                text = str(error)
            end = time.monotonic()
            self._answers[study.name] = mark, text, trained
            self._due[study.name] = end + (end - begin) / BUSY

    def page(self, name: str) -> tuple[str, int | None] | None:
        """Return the page of a study, or that it is being made, and when to load it again.

        The page of a study that no sweep trains stays: its reader is not disturbed. None if there
        is no such study.
        """
        from lmzoo.lab.analysis.report.html import html_page, paragraphs

        found = [study for study in self._studies() if study.name == name]
        if not found:
            return None
        if time.monotonic() >= self._kept.get(name, (0.0,))[0]:
            self._start(name, lambda: self._make(found[0])).join(PATIENCE)
        if name in self._kept:
            return self._kept[name][1:]
        return html_page(name, paragraphs(["This page is being made; it shows itself."]), []), SOON

    def _make(self, study: Path) -> None:
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
        self._kept[study.name] = end + (end - begin) / BUSY, page, reload


class Handler(BaseHTTPRequestHandler):
    """Answers GET; every other method gets 501."""

    timeout = SECONDS
    pages: ClassVar[Pages]
    token: ClassVar[str]

    def do_GET(self) -> None:
        """Send the overview or the page of a study."""
        port = self.connection.getsockname()[1]
        hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        _, given, *rest = [*self.path.partition("?")[0].split("/", 2), ""][:3]
        name = unquote("".join(rest))
        if self.headers.get_all("Host") not in [[host] for host in hosts]:
            self._send(HTTPStatus.FORBIDDEN, "another host name")
        elif not secrets.compare_digest(given.encode(), self.token.encode()):
            self._send(HTTPStatus.FORBIDDEN, "open the link that lmzoo serve printed")
        elif not name:
            self._send(HTTPStatus.OK, self.pages.overview(), RELOAD)
        elif (found := self.pages.page(name)) is None:
            self._send(HTTPStatus.NOT_FOUND, "no such study")
        else:
            self._send(HTTPStatus.OK, *found)

    def _send(self, status: HTTPStatus, page: str, reload: int | None = None) -> None:
        body = page.encode()
        self.send_response(status)
        # A browser reloads a page by itself, so that the file of `lmzoo report` has no clock.
        headers = {
            "Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body)),
            "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
        }  # fmt: skip
        if reload is not None:
            headers["Refresh"] = str(reload)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a line of the log would show the token."""


class Server(ThreadingHTTPServer):
    """Answers at most `MOST` requests at the same time; it closes further ones."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._free = BoundedSemaphore(MOST)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
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
) -> None:  # fmt: skip
    """Show the pages of all studies in a browser, also while a sweep runs. Ctrl-C ends it.

    The pages are those of `lmzoo report`; a browser loads that of a running sweep again every 15
    seconds.
    Only a browser with the printed link, on this machine, is answered. From another machine:
    ssh -L PORT:127.0.0.1:PORT HOST.
    """
    from lmzoo.lab.analysis.report import render_report

    server = build_server(runs, port, lambda study: render_report(study))
    token = server.RequestHandlerClass.token  # type: ignore[attr-defined]
    echo(f"http://127.0.0.1:{server.server_port}/{token}/")
    with server:
        server.serve_forever()
