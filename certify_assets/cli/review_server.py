"""The server of the review page: one corpus, this machine, reviewers who have the link."""

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from certify_assets.cli.output import complain
from certify_assets.errors import InputError
from certify_assets.reports.review_page import (
    Reviewer,
    render_message,
    render_name,
    render_queue,
    render_review,
    style_hash,
)

if TYPE_CHECKING:
    from certify_assets.operations.review_session import ReviewSession

_REVIEWER = "certify_reviewer"
_DRAINED = 1 << 20
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class ReviewLimits:
    """What one client may take."""

    #: longest form
    body_bytes: int = 16_384
    #: most fields of a form
    fields: int = 12
    #: from the first byte of a request to the last of the answer
    seconds: float = 20.0
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


class ReviewServer(ThreadingHTTPServer):
    """Serves one review session; a thread a request.

    Requests that name another host than `host` are refused, so that no other site can reach the
    page by a name of its own. Port 0 is any that is free; InputError where the address is taken.

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
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: ReviewLimits | None = None,
    ) -> None:
        self.session = session
        self.limits = limits or ReviewLimits()
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
                f"{host}:{port} cannot be listened on ({error.strerror or error}); give "
                "another --host or --port."
            ) from None

    @property
    def cookie(self) -> str:
        """Name of the token's cookie: another port of this host may serve another corpus."""
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
        """Return the hidden field of a reviewer's forms; "" for the form that asks for the name."""
        return hmac.new(
            self.token.encode(), f"csrf:{reviewer}".encode(), hashlib.sha256
        ).hexdigest()


def _cut(request: socket.socket) -> None:
    # it may have ended by itself
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _RefusedError(Exception):
    """A request that is not answered with what it asks for."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class ReviewHandler(BaseHTTPRequestHandler):
    """One request. HTTP/1.0: a connection a request, so that no idle one stays open."""

    server: ReviewServer
    _unread = 0

    def setup(self) -> None:
        """Let no single read or write wait for ever."""
        super().setup()
        self.connection.settimeout(self.server.limits.seconds)

    def do_GET(self) -> None:
        """Show a page."""
        self._answer({"/": self._home, "/name": self._ask_name, "/queue": self._queue})

    def do_POST(self) -> None:
        """Take a form and lead on to the next page."""
        posts = {
            "/name": self._name,
            "/label": self._label,
            "/skip": self._skip,
            "/undo": self._undo,
            "/again": self._again,
        }
        self._answer(posts)

    def version_string(self) -> str:
        """Say what answers, and no version of it."""
        return "certify"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the first request of every reviewer has the token in its address."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is not HTTP, or an unknown method, without repeating it."""
        # a request without a version would get a page without a head, and so without the policy
        self.request_version = self.protocol_version
        self._message(
            HTTPStatus(code),
            "Not understood",
            "This is no request that the review page answers.",
            onward=False,
        )

    def _answer(self, routes: Mapping[str, Callable[[], None]]) -> None:
        try:
            self._unread = self._length()
            self._require_host()
            route = routes.get(self._address()[0])
            if route is None:
                raise _RefusedError(HTTPStatus.NOT_FOUND, "There is no such page here.")
            route()
        except _RefusedError as refused:
            self._message(
                refused.status,
                "Refused",
                str(refused),
                onward=refused.status is not HTTPStatus.FORBIDDEN,
            )
        except InputError as error:
            self._message(HTTPStatus.CONFLICT, "Not done", str(error))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            raise
        except OSError as error:
            complain(f"{error.filename or 'the data root'}: {error.strerror or error}")
            self._message(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "Not written",
                "This label could not be written; those before it stand. Send it again.",
            )

    def _home(self) -> None:
        token = self._address()[1].get("token")
        if token is not None:
            self._enter(token)
            return
        reviewer = self._entered()
        if reviewer is None:
            self._redirect("/name")
            return
        session, who = self.server.session, Reviewer(reviewer, self.server.csrf(reviewer))
        shown, said = session.shown(reviewer), session.last(reviewer)
        if shown is not None:
            self._send(
                HTTPStatus.OK,
                render_review(shown, said, session.queue().budget, session.corpus, who),
            )
            return
        skipped = session.skipped(reviewer)
        more = "New runs appear here when they are decided."
        sentence = f"You skipped {skipped}. {more}" if skipped else more
        if broken := session.unreadable():
            sentence += f" {len(broken)} runs of the queue cannot be shown: {broken[0]}"
        page = render_message(
            "Nothing is left for you",
            sentence,
            corpus=session.corpus,
            reviewer=who,
            said=said,
            skipped=skipped,
        )
        self._send(HTTPStatus.OK, page)

    def _enter(self, token: str) -> None:
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise _RefusedError(
                HTTPStatus.FORBIDDEN,
                "The token is not the one that was printed when this server was started.",
            )
        page = render_name(
            self.server.session.corpus, self.server.csrf(""), name=self._cookie(_REVIEWER)
        )
        self._send(HTTPStatus.OK, page, cookies={self.server.cookie: self.server.token})

    def _ask_name(self) -> None:
        self._entered()
        self._send(
            HTTPStatus.OK,
            render_name(
                self.server.session.corpus, self.server.csrf(""), name=self._cookie(_REVIEWER)
            ),
        )

    def _queue(self) -> None:
        self._entered()
        session = self.server.session
        self._send(HTTPStatus.OK, render_queue(session.queue(), session.corpus, served=True))

    def _name(self) -> None:
        self._entered()
        given = self._form("").get("reviewer", "")
        try:
            name = self.server.session.name(given)
        except InputError as error:
            page = render_name(self.server.session.corpus, self.server.csrf(""), problem=str(error))
            self._send(HTTPStatus.UNPROCESSABLE_ENTITY, page)
            return
        self._redirect("/", cookies={_REVIEWER: quote(name, safe="")})

    def _label(self) -> None:
        reviewer, form = self._signed()
        outcome = {"0": 0, "1": 1}.get(form.get("outcome", ""))
        if outcome is None:
            raise _RefusedError(
                HTTPStatus.BAD_REQUEST, "The form says neither success nor failure."
            )
        self.server.session.say(
            reviewer, form.get("run", ""), outcome, _number(form, "number"), form.get("comment", "")
        )
        self._redirect("/")

    def _skip(self) -> None:
        reviewer, form = self._signed()
        self.server.session.skip(reviewer, form.get("run", ""))
        self._redirect("/")

    def _undo(self) -> None:
        reviewer, form = self._signed()
        self.server.session.take_back(reviewer, _number(form, "line"))
        self._redirect("/")

    def _again(self) -> None:
        reviewer, _ = self._signed()
        self.server.session.show_skipped(reviewer)
        self._redirect("/")

    def _signed(self) -> tuple[str, dict[str, str]]:
        """Return the reviewer and the form, where both belong together."""
        reviewer = self._entered()
        if reviewer is None:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "Say first who you are.")
        return reviewer, self._form(reviewer)

    def _address(self) -> tuple[str, dict[str, str]]:
        """Return path and query of the address that was asked for."""
        try:
            parts = urlsplit(self.path)
            return parts.path, dict(
                parse_qsl(parts.query, max_num_fields=self.server.limits.fields)
            )
        except ValueError:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "There is no such address.") from None

    def _require_host(self) -> None:
        given = self.headers.get_all("Host") or []
        try:
            name = urlsplit(f"//{given[0]}").hostname if len(given) == 1 else None
        except ValueError:
            name = None
        if name not in self.server.names:
            raise _RefusedError(
                HTTPStatus.FORBIDDEN,
                "This page answers only under the address that was printed when it was started.",
            )

    def _entered(self) -> str | None:
        """Return the reviewer, None without a name; refuse those without the link."""
        if not hmac.compare_digest(
            self._cookie(self.server.cookie).encode(), self.server.token.encode()
        ):
            raise _RefusedError(
                HTTPStatus.FORBIDDEN, "Open the link that was printed when this server was started."
            )
        try:
            return self.server.session.name(self._cookie(_REVIEWER))
        except InputError:
            return None

    def _cookie(self, name: str) -> str:
        try:
            found = SimpleCookie("; ".join(self.headers.get_all("Cookie") or [])).get(name)
        except CookieError:
            return ""
        return "" if found is None else unquote(found.value)

    def _length(self) -> int:
        given = self.headers.get_all("Content-Length") or ["0"]
        if (
            len(given) > 1
            or not given[0].isascii()
            or not given[0].isdigit()
            or self.headers.get("Transfer-Encoding")
        ):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "The length of the form is not known.")
        return int(given[0][:12])

    def _form(self, reviewer: str) -> dict[str, str]:
        """Read the form, which must be of this site and of this reviewer."""
        if self._unread > self.server.limits.body_bytes:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too long; shorten the comment."
            )
        if self.headers.get_content_type() != "application/x-www-form-urlencoded":
            raise _RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "This is not one of the page's forms."
            )
        body, length = self.rfile.read(self._unread), self._unread
        self._unread = 0
        if len(body) < length:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "The form ended early; send it again.")
        try:
            pairs = parse_qsl(
                body.decode("ascii"),
                keep_blank_values=True,
                max_num_fields=self.server.limits.fields,
                errors="strict",
            )
        except ValueError:
            raise _RefusedError(
                HTTPStatus.BAD_REQUEST, "The form cannot be read; go back and send it again."
            ) from None
        form = dict(pairs)
        elsewhere = self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")
        if (
            elsewhere
            or len(form) < len(pairs)
            or not hmac.compare_digest(
                form.get("csrf", "").encode(), self.server.csrf(reviewer).encode()
            )
        ):
            raise _RefusedError(
                HTTPStatus.FORBIDDEN,
                (
                    "This form was not made by this page for you; go back to the queue and send "
                    "it from there."
                ),
            )
        return form

    def _message(
        self, status: HTTPStatus, title: str, sentence: str, *, onward: bool = True
    ) -> None:
        self._send(
            status,
            render_message(title, sentence, corpus=self.server.session.corpus, onward=onward),
        )

    def _redirect(self, where: str, cookies: Mapping[str, str] | None = None) -> None:
        self._send(HTTPStatus.SEE_OTHER, "", cookies=cookies, headers={"Location": where})

    def _send(
        self,
        status: HTTPStatus,
        page: str,
        *,
        cookies: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        data = page.encode("utf-8", errors="replace")
        self.send_response(status)
        policy = (
            f"default-src 'none'; style-src {style_hash()}; form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'"
        )
        for name, value in {
            **_HEADERS,
            "Content-Security-Policy": policy,
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        for name, value in (cookies or {}).items():
            self.send_header("Set-Cookie", f"{name}={value}; HttpOnly; SameSite=Strict; Path=/")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        self._drain()

    def _drain(self) -> None:
        """Read what was sent and not wanted, up to a bound.

        Closing on unread bytes would take the answer back from the client.
        """
        self.close_connection = True
        if not self._unread:
            return
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(1.0)
            left = min(self._unread, _DRAINED)
            while left > 0 and (piece := self.rfile.read1(min(left, 65_536))):
                left -= len(piece)


def _number(form: Mapping[str, str], name: str) -> int:
    given = form.get(name, "")
    if not (given.isascii() and given.isdigit() and len(given) < 12):
        raise _RefusedError(
            HTTPStatus.BAD_REQUEST, f"The form's {name} is no number; go back and send it again."
        )
    return int(given)
