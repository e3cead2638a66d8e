"""The server of the review page: one corpus, this machine, reviewers who have a link."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import socketserver
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from certify_assets.cli.output import complain
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.operations.review_session import ReviewSession


@dataclass(frozen=True)
class ReviewLimits:
    """What one client may take."""

    #: longest form
    body_bytes: int = 16_384
    #: most fields of a form
    fields: int = 12
    #: from the first byte of a request to the last of the answer
    seconds: float = 20.0
    #: without a byte, until the headers are complete
    header_seconds: float = 5.0
    #: at the same time, of all clients
    connections: int = 64


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Connections:
    """Open connections, at most so many; one that has not shown a link gives way to the next."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}
        self._reviewers: set[socket.socket] = set()

    def take(self, request: socket.socket) -> bool:
        """Take a place, where all are taken that of the oldest stranger; False without any."""
        with self._lock:
            if len(self._strangers) + len(self._reviewers) >= self._most:
                oldest = next(iter(self._strangers), None)
                if oldest is None:
                    return False
                del self._strangers[oldest]
                _cut(oldest)
            self._strangers[request] = None
            return True

    def keep(self, request: socket.socket) -> None:
        """Keep the place of a connection that showed a link."""
        with self._lock:
            if request in self._strangers:
                del self._strangers[request]
                self._reviewers.add(request)

    def leave(self, request: socket.socket) -> None:
        """Give a place back."""
        with self._lock:
            self._strangers.pop(request, None)
            self._reviewers.discard(request)


class ReviewServer(ThreadingHTTPServer):
    """Serves one review session; a thread a request, answered by `handler`.

    Each of `reviewers` gets a link. Without any there is one link, whose reviewer says who they
    are; it is theirs alone from the first form that they send. Requests that name another host
    than `host` are refused, so that no other site can reach the page by a name of its own. Port 0
    is any that is free; InputError where the address is taken.

    Not Starlette on uvicorn (tried with 0.54): uvicorn has no time limit before a request is
    complete and none for an idle first connection, answers 400 without headers of ours before the
    app is asked, and gives no answer to a form that ends early; each would be a patch of its
    private protocol class.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        session: ReviewSession,
        handler: type[BaseHTTPRequestHandler],
        *,
        reviewers: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        limits: ReviewLimits | None = None,
    ) -> None:
        self.session = session
        self.limits = limits or ReviewLimits()
        names = [session.name(name) for name in reviewers]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"the reviewer {twice!r} is named twice; name each of them once.")
        #: reviewer of each token; empty until the one of a common link has sent a form
        self._links = {secrets.token_urlsafe(32): name for name in names or [""]}
        self._binding = threading.Lock()
        self.names = frozenset(
            {host.lower(), "127.0.0.1", "localhost", "::1"} if is_loopback(host) else {host.lower()}
        )
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.places = _Connections(self.limits.connections)
        try:
            super().__init__((host, port), handler)
        except OSError as error:
            raise InputError(
                f"{host}:{port} cannot be listened on ({error.strerror or error}); give "
                "another --host or --port."
            ) from None

    @property
    def cookie(self) -> str:
        """Name of the token's cookie: another port of this host may serve another corpus."""
        return f"certify_review_{self.server_port}"

    @property
    def links(self) -> dict[str, str]:
        """The links that let reviewers in, by their names; one under "" for whom it is given."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return {
            name: f"http://{shown}:{port}/?token={token}" for token, name in self._links.items()
        }

    @property
    def url(self) -> str:
        """The first link."""
        return next(iter(self.links.values()))

    def known(self, token: str) -> str | None:
        """Return a token that was printed, None for another; all of them take the same time."""
        given, found = token.encode(), None
        for one in self._links:
            found = one if hmac.compare_digest(given, one.encode()) else found
        return found

    def owner(self, token: str) -> str:
        """Return whose link a token is; empty where nobody has used it."""
        return self._links[token]

    def bind(self, token: str, reviewer: str) -> bool:
        """Give a link to a reviewer; False where it is another's."""
        with self._binding:
            if not self._links[token]:
                self._links[token] = reviewer
            return self._links[token] == reviewer

    def server_bind(self) -> None:
        """Bind without asking a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            int(self.server_address[1]),
        )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a request, unless reviewers have all places."""
        if not self.places.take(request):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request, and cut it off when it takes too long."""
        timer = threading.Timer(self.limits.seconds, _cut, [request])
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self.places.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong in the server, and nothing where a client went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            complain(f"an answer failed: {traceback.format_exc(limit=-3)}")


def _cut(request: socket.socket) -> None:
    # it may have ended by itself
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
