"""The review server in a process or thread of its own, and a client without scripts."""

import html
import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from certify_assets.cli.review_server import ReviewServer
from certify_assets.storage.store import Store
from certify_assets_tests.paths import REPOSITORY

__all__ = ["Client", "Page", "Served", "serve", "served", "serving"]


class Page(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    text: str

    def field(self, name: str) -> str:
        """Return the value of a hidden field."""
        found = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)">', self.text)
        assert found is not None, self.text[:2000]
        return html.unescape(found[1])


@dataclass
class Served:
    """A running server: its process and the links that it printed."""

    process: subprocess.Popen[str]
    links: dict[str, str]

    @property
    def url(self) -> str:
        return next(iter(self.links.values()))

    @property
    def port(self) -> int:
        return int(urlsplit(self.url).port or 0)

    @property
    def token(self) -> str:
        return self.url.partition("?token=")[2]


@dataclass
class Client:
    """One person's browser."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def ask(
        self,
        method: str,
        path: str,
        form: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Page:
        """Send one request and read its answer."""
        where = urlsplit(self.url)
        host, port = str(where.hostname), where.port
        connection = http.client.HTTPConnection(host, port, timeout=30)
        body = None if form is None else urlencode(form)
        sent = (
            {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
            if self.cookies
            else {}
        )
        if body is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, body=body, headers={**sent, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8")
            for cookie in answer.headers.get_all("Set-Cookie") or []:
                name, _, value = cookie.partition(";")[0].partition("=")
                self.cookies[name] = value
            headers = {name.title(): value for name, value in answer.headers.items()}
            return Page(answer.status, headers, text)
        finally:
            connection.close()

    def enter(self, name: str) -> Page:
        """Open one's link and return the first run."""
        where = urlsplit(self.links[name])
        first = self.ask("GET", f"{where.path}?{where.query}")
        assert first.status == 200 and f">{html.escape(name)}</h1>" in first.text, first.text
        return self.ask("GET", "/")

    def label(self, page: Page, outcome: int, **more: str) -> Page:
        """Send the form of a page."""
        form = {name: page.field(name) for name in ("csrf", "run", "number")}
        return self.ask("POST", "/label", {**form, "outcome": outcome, "comment": "", **more})


def serve(store: Store, *options: str) -> Served:
    """Start `certify review serve c` on a data root, for Ann where nobody is named."""
    options = options if "--reviewer" in options else (*options, "--reviewer", "Ann")
    line = f"-m certify_assets.cli review serve c --json --root {store.root}"
    port = [] if "--port" in options else ["--port", "0"]
    command = [sys.executable, *line.split(), *port, *options]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    said = ""
    while not said.endswith("}\n"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        said += line
    document = json.loads(said)
    return Served(process, document["links"])


@contextmanager
def served(store: Store, *options: str) -> Iterator[Served]:
    """Have a server for a while."""
    one = serve(store, *options)
    try:
        yield one
    finally:
        one.process.terminate()
        one.process.communicate(timeout=30)


@contextmanager
def serving(server: ReviewServer) -> Iterator[ReviewServer]:
    """Let a server answer in a thread while the block lasts."""
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        server.close()
