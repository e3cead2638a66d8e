"""The server of the review page: one corpus, this machine, whoever has the link."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import socketserver
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from certify_assets.cli.output import complain
from certify_assets.cli.review_handler import ReviewHandler
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.operations.reviewing import ReviewSession


@dataclass(frozen=True)
class Limits:
    """What one client may take.

    Parameters
    ----------
    body_bytes : int
        Longest form.
    fields : int
        Most fields of a form.
    seconds : float
        From the first byte of a request to the last of the answer.
    connections : int
        At the same time, of all clients.
    """

    body_bytes: int = 16_384
    fields: int = 12
    seconds: float = 20.0
    connections: int = 64


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ReviewServer(ThreadingHTTPServer):
    """Serves one session of reviewing; a thread a request.

    Parameters
    ----------
    session : ReviewSession
    host : str
        One address or name; requests that name another host are refused, so that no other site can reach it by a name of its own.
    port : int
        0 for any that is free.
    limits : Limits

    Raises
    ------
    InputError
        If the address cannot be listened on.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        session: ReviewSession,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
    ) -> None:
        self.session = session
        self.limits = limits or Limits()
        self.token = secrets.token_urlsafe(32)
        self.names = frozenset(
            {host.lower(), "127.0.0.1", "localhost", "::1"} if is_loopback(host) else {host.lower()}
        )
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._places = threading.BoundedSemaphore(self.limits.connections)
        try:
            super().__init__((host, port), ReviewHandler)
        except OSError as error:
            raise InputError(
                f"{host}:{port} cannot be listened on ({error.strerror or error}); give another --host or --port."
            ) from None

    @property
    def cookie(self) -> str:
        """Name of the cookie that holds the token: cookies are of a host, and another port may serve another corpus."""
        return f"certify_review_{self.server_port}"

    @property
    def url(self) -> str:
        """The link that lets a reviewer in."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/?token={self.token}"

    def server_bind(self) -> None:
        """Bind without asking a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            int(self.server_address[1]),
        )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a request, unless there are too many."""
        if not self._places.acquire(blocking=False):
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
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong in the server, and nothing where a client went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            complain(f"an answer failed: {traceback.format_exc(limit=-3)}")

    def csrf(self, reviewer: str) -> str:
        """Return the field that forms of a reviewer carry and no other site can know; "" for the form that asks for the name."""
        return hmac.new(
            self.token.encode(), f"csrf:{reviewer}".encode(), hashlib.sha256
        ).hexdigest()


def _cut(request: socket.socket) -> None:
    # it may have ended by itself
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
