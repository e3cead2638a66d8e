"""The server of the review page: one corpus, this machine, reviewers who have a link."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from certify_assets.cli.review_app import ReviewPages, Site, link_tokens
from certify_assets.errors import InputError
from certify_assets.operations.notifications import is_loopback

if TYPE_CHECKING:
    from certify_assets.operations.review_session import ReviewSession

_CONNECTIONS: Final = 256
#: for answers that are on their way when the server is stopped
_STOP_SECONDS: Final = 5


class _Connection(H11Protocol):
    """A connection that ends in time; uvicorn has no limit before a request is complete."""

    def __init__(self, seconds: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seconds = seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the time limit."""
        self._end = self.loop.call_later(self._seconds, transport.abort)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limit."""
        self._end.cancel()
        super().connection_lost(exc)


class ReviewServer:
    """Serves one review session until it is stopped, by uvicorn.

    Each of `reviewers` gets a link. `public` is the address under which a proxy shows the pages.
    Port 0 is any that is free; InputError where the address is taken. A connection has `seconds`
    from its beginning to the last byte of its answer.
    """

    def __init__(
        self,
        session: ReviewSession,
        *,
        reviewers: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        public: str = "",
        seconds: float = 20.0,
    ) -> None:
        names = [session.name(name) for name in reviewers]
        tokens = link_tokens(session.store, session.corpus, names)
        self._socket = _listening(host, port)
        self.server_port = int(self._socket.getsockname()[1])
        own = f"[{host}]" if ":" in host else host.lower()
        home = f"{(public or f'http://{own}:{self.server_port}').rstrip('/')}/"
        address = urlsplit(home)
        hosts = {own, str(address.hostname)}
        if is_loopback(host):
            hosts |= {"127.0.0.1", "localhost", "[::1]"}
        site = Site(
            tokens,
            sorted(hosts),
            f"certify_review_{self.server_port}",
            address.path,
            secure=address.scheme == "https",
        )
        #: the links that let reviewers in, by their names
        self.links = {name: f"{home}?token={token}" for name, token in tokens.items()}
        protocol: Any = partial(_Connection, seconds)
        self._server = uvicorn.Server(
            uvicorn.Config(
                ReviewPages(session, site).app(),
                http=protocol,
                loop="asyncio",
                ws="none",
                lifespan="off",
                # the first request of every reviewer has the token in its address
                access_log=False,
                log_config=None,
                log_level="error",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_CONNECTIONS,
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
        )

    def serve(self) -> None:
        """Answer until `stop`, SIGINT or SIGTERM; answers on their way are finished."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Let `serve` end."""
        self._server.should_exit = True

    def close(self) -> None:
        """Give the address back."""
        self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            f"{host}:{port} cannot be listened on ({error.strerror or error}); give "
            "another --host or --port."
        ) from None
