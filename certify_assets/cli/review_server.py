"""The server of the review page: one corpus, this machine, reviewers who have a link."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from certify_assets.cli.review_app import ReviewApp, ReviewLimits, Site, not_understood
from certify_assets.cli.review_links import Links
from certify_assets.errors import InputError
from certify_assets.operations.notifications import is_loopback

if TYPE_CHECKING:
    from certify_assets.operations.review_session import ReviewSession

#: connections that are accepted before those that are there are read
_BACKLOG: Final = 64
_HEAD_BYTES: Final = 1 << 14
#: for answers that are on their way when the server is stopped
_STOP_SECONDS: Final = 5


class _Places:
    """Open connections, at most so many; one that has not shown a link gives way to the next."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._strangers: dict[_Connection, None] = {}
        self._reviewers: set[_Connection] = set()

    def take(self, one: _Connection) -> bool:
        """Take a place, where all are taken that of the oldest stranger; False without any."""
        if len(self._strangers) + len(self._reviewers) >= self._most:
            oldest = next(iter(self._strangers), None)
            if oldest is None:
                return False
            del self._strangers[oldest]
            oldest.cut()
        self._strangers[one] = None
        return True

    def keep(self, one: _Connection) -> None:
        """Keep the place of a connection that showed a link."""
        if one in self._strangers:
            del self._strangers[one]
            self._reviewers.add(one)

    def leave(self, one: _Connection) -> None:
        """Give a place back."""
        self._strangers.pop(one, None)
        self._reviewers.discard(one)


class _Connection(H11Protocol):
    """One connection: uvicorn's, with limits before a request is complete.

    Its own settings are no substitute: `limit_concurrency` answers 503 to the reviewer who comes
    after idle strangers, `timeout_keep_alive` begins after an answer. With them and no class of
    ours, 17 of the server's 57 tests failed, among them all that hold connections open.

    uvicorn has no time limit before a request is complete, closes on clients that have closed their
    half, and answers what is not HTTP without the headers of our pages.
    """

    def __init__(
        self,
        places: _Places,
        limits: ReviewLimits,
        config: uvicorn.Config,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
        self._places, self._limits = places, limits
        self._timers: list[asyncio.TimerHandle] = []
        self._ready, self._refused = False, False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, and let uvicorn have the connection."""
        self._raw = transport
        if not self._places.take(self):
            transport.abort()
            return
        waits = (self._limits.header_seconds, self._limits.seconds)
        self._timers = [self.loop.call_later(wait, self.cut) for wait in waits]
        self._ready = True
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Let uvicorn have the bytes."""
        if not self._refused:
            super().data_received(data)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer a client that closed its half and still reads, also in the middle of a form."""
        if self.conn.our_state is h11.IDLE or self._refused:
            return None
        self.cycle.more_body = False
        self.cycle.message_event.set()
        return True

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP with a page of ours."""
        # called while uvicorn handles the error
        status = getattr(sys.exception(), "error_status_hint", HTTPStatus.BAD_REQUEST)
        if self.conn.our_state is not h11.IDLE:
            # a form at fault, which somebody is reading
            self.cut()
            return
        self._refused = True
        page = not_understood(status)
        head = h11.Response(status_code=page.status_code, headers=page.raw_headers)
        for event in (head, h11.Data(data=bytes(page.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        # what still comes is read until the client closes: a close would take the answer back
        self.transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        for timer in self._timers:
            timer.cancel()
        self._places.leave(self)
        if self._ready:
            self._ready = False
            super().connection_lost(exc)

    def begin(self) -> None:
        """End the time limit of the headers, which are complete."""
        self._timers[0].cancel()

    def keep(self) -> None:
        """Keep the place, as a reviewer's."""
        self._places.keep(self)

    def cut(self) -> None:
        """Close the connection, whatever is on its way."""
        self._raw.abort()


class ReviewServer:
    """Serves one review session until it is stopped, by uvicorn.

    Each of `reviewers` gets a link, or those of `token_file`, which keeps them; see `Links`.
    `prefix` is the path below which a proxy shows the pages and `public` the name under which it
    does, over https. Port 0 is any that is free; InputError where the address is taken.
    """

    def __init__(
        self,
        session: ReviewSession,
        *,
        reviewers: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        limits: ReviewLimits | None = None,
        prefix: str = "",
        public: str = "",
        token_file: Path | None = None,
    ) -> None:
        self.limits = limits or ReviewLimits()
        names = [session.name(name) for name in reviewers]
        # before links are made and kept: another server may have the address
        self._socket = _listening(host, port)
        try:
            links = Links(names, file=token_file)
        except BaseException:
            self._socket.close()
            raise
        self.server_port = int(self._socket.getsockname()[1])
        hosts = {"127.0.0.1", "localhost", "::1"} if is_loopback(host) else set()
        hosts |= {host.lower(), *filter(None, [public.lower()])}
        cookie = f"certify_review_{self.server_port}"
        self.site = Site(frozenset(hosts), cookie, prefix.rstrip("/"), secure=bool(public))
        at = public or f"{f'[{host}]' if ':' in host else host}:{self.server_port}"
        home = f"{'https' if public else 'http'}://{at}{self.site.prefix}/"
        #: the links that let reviewers in, by their names
        self.links = {name: f"{home}?token={token}" for name, token in links.tokens.items()}
        places = _Places(self.limits.connections)
        protocol: Any = partial(_Connection, places, self.limits)
        self._server = uvicorn.Server(
            uvicorn.Config(
                ReviewApp(session, links, self.site, self.limits),
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
                backlog=_BACKLOG,
                h11_max_incomplete_event_size=_HEAD_BYTES,
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
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(
            f"{host}:{port} cannot be listened on ({error.strerror or error}); give "
            "another --host or --port."
        ) from None
