"""The server of `redraft view`: a few pages made of a run store, for a browser on this machine. It only reads.

Another site's script cannot read it: it answers only where the browser was told its own name (a name that was pointed at this
machine meanwhile is another one), lets no site frame it or load from it, and its pages run no script but their own.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redraft.errors import RedraftError, UsageError
from redraft.jsonable import plain
from redraft.report.page import render
from redraft.report.page.data import run_data
from redraft.report.page.evaluation import evaluation, is_evaluation
from redraft.report.page.listing import Lister
from redraft.report.page.redact import Redactor
from redraft.report.page.story import Story, story
from redraft.store.sqlite import SqliteStore
from redraft.types import Event

_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_SHOWN = 500
"""Runs that the list shows unless more are asked for."""
_SLOWEST = 30.0
"""Seconds that a connection may say nothing."""

_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What comes of events that nobody wrote so. One run's damage ends neither the server nor the list."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

Answer = tuple[HTTPStatus, str, str]
"""Status, type, body."""


class Viewer(ThreadingHTTPServer):
    """Serves one store on `host`:`port` (0: any that is free) until it is closed."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, store: SqliteStore, host: str, port: int) -> None:
        self.store = store
        self.redactor = Redactor()
        self.lister = Lister(store, self.redactor)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Asked)
        bound = int(self.server_address[1])
        self.address = f"http://{_named(host)}:{bound}/"
        self.names = {f"{name}:{bound}" for name in ("127.0.0.1", "localhost", "[::1]", _named(host))}
        """What a browser on this machine may call it."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that left is nothing to say; anything else is a fault of ours, and goes to the log."""
        del request, client_address
        error = sys.exception()
        if not isinstance(error, OSError):
            logging.getLogger("redraft").error("a page could not be made: %r", error, exc_info=error)

    def run(self, run_id: str) -> Story:
        """One run's story. Raises `StoreError` if it cannot be read, `UsageError` if there is none of that id."""
        return story(run_id, self.events(run_id))

    def events(self, run_id: str) -> list[Event]:
        """A run's events without secrets. Raises the same."""
        events = self.store.read(run_id)
        if not events:
            raise UsageError(f"there is no run {run_id!r} in {self.store.path}")
        return self.redactor.events(events)


class _Asked(BaseHTTPRequestHandler):
    """One connection."""

    server: Viewer
    protocol_version = "HTTP/1.1"
    server_version = "redraft"
    sys_version = ""
    timeout = _SLOWEST

    def do_GET(self) -> None:
        """Answer with a page, a part of one, or JSON."""
        status, kind, body = self._answer()
        data = body.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{render.policy(served=True)}; frame-ancestors 'none'")
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD" and status is not HTTPStatus.NO_CONTENT:
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        """The same without the body."""
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the user's."""

    def _answer(self) -> Answer:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.names:
            said = f"This page is for this machine: open {self.server.address}"
            return HTTPStatus.MISDIRECTED_REQUEST, "text/plain; charset=utf-8", said
        try:
            url = urlsplit(self.path)
        except ValueError as error:  # a bracket without its other half
            return _error(HTTPStatus.BAD_REQUEST, "Not here", f"The address cannot be read: {error}.")
        asked = {name: values[-1] for name, values in parse_qs(url.query).items()}
        first, _, rest = url.path.removeprefix("/").partition("/")
        routes: dict[str, Callable[[], Answer]] = {
            "": lambda: self._list(asked),
            "run": lambda: self._run(unquote(rest), asked),
            "json": lambda: self._json(unquote(rest)),
        }
        if first not in routes or (not first and rest):
            return _error(HTTPStatus.NOT_FOUND, "Not here", f"There is no page {url.path}.")
        try:
            return routes[first]()
        except UsageError as error:
            return _error(HTTPStatus.NOT_FOUND, "No such run", str(error))
        except (RedraftError, *_DAMAGED) as error:
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "It cannot be read", f"{type(error).__name__}: {error}")

    def _list(self, asked: dict[str, str]) -> Answer:
        limit = int(n) if (n := asked.get("n", "")).isdecimal() and len(n) < 8 else _SHOWN
        listing = self.server.lister.listing(max(1, limit))
        if "part" not in asked:
            return HTTPStatus.OK, _HTML, render.list_page(listing)
        if asked.get("seen") == listing.mark:
            return HTTPStatus.NO_CONTENT, "", ""
        return HTTPStatus.OK, _HTML, render.list_part(listing)

    def _run(self, run_id: str, asked: dict[str, str]) -> Answer:
        if "part" not in asked:
            return HTTPStatus.OK, _HTML, self._page(run_id)
        if asked.get("seen") == str(len(self.server.store.read(run_id))):
            return HTTPStatus.NO_CONTENT, "", ""
        return HTTPStatus.OK, _HTML, render.run_part(self.server.run(run_id))

    def _page(self, run_id: str) -> str:
        events = self.server.events(run_id)
        if is_evaluation(events):
            return render.evaluation_page(evaluation(run_id, events))
        return render.run_page(story(run_id, events))

    def _json(self, run_id: str) -> Answer:
        data = run_data(self.server.store.run(run_id), self.server.events(run_id), self.server.redactor)
        return HTTPStatus.OK, _JSON, json.dumps(data, indent=1, default=plain)


def _error(status: HTTPStatus, title: str, text: str) -> Answer:
    return status, _HTML, render.error_page(title, text)


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def bound(store: SqliteStore, host: str, port: int | None, usual: int) -> Viewer:
    """The server on the port that was asked for, else on the usual one, or a free one where that is taken.

    Raises `UsageError` if there is no listening there.
    """
    try:
        return Viewer(store, host, usual if port is None else port)
    except OSError as error:
        if port is not None:
            raise UsageError(
                f"port {port} of {host} cannot be had: {error.strerror}; give another one, or --port 0"
            ) from error
    try:
        return Viewer(store, host, 0)
    except OSError as error:
        raise UsageError(f"{host} cannot be listened on: {error.strerror}") from error
