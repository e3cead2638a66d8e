"""One request to the review page: who asks, what they may ask for, and the answer."""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
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
    from certify_assets.cli.review_server import ReviewServer

_REVIEWER = "certify_reviewer"
_DRAINED = 1 << 20
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z.\-]+)(:[0-9]{1,5})?")
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _csrf(token: str, reviewer: str) -> str:
    """Return the hidden field of a reviewer's forms; "" for the form that asks for the name."""
    return hmac.new(token.encode(), f"csrf:{reviewer}".encode(), hashlib.sha256).hexdigest()


class _RefusedError(Exception):
    """A request that is not answered with what it asks for."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class ReviewHandler(BaseHTTPRequestHandler):
    """One request. HTTP/1.0: a connection a request, so that no idle one stays open."""

    server: ReviewServer
    connection: socket.socket
    _unread = 0
    _token = ""  # of the link; empty until it was shown

    def setup(self) -> None:
        """Let no single read or write wait for ever."""
        super().setup()
        self.connection.settimeout(self.server.limits.header_seconds)

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
            self.connection.settimeout(self.server.limits.seconds)
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
        session, owned = self.server.session, bool(self.server.owner(self._token))
        who = Reviewer(reviewer, _csrf(self._token, reviewer), owned)
        shown, said = session.shown(reviewer), session.last(reviewer)
        if shown is not None:
            self._send(
                HTTPStatus.OK,
                render_review(
                    shown, said, session.queue().budget, session.corpus, who, news=session.news()
                ),
            )
            return
        skipped = session.skipped(reviewer)
        sentence = f"You skipped {skipped}. " if skipped else ""
        sentence += " ".join([*session.news(), "New runs appear here when they are decided."])
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

    def _enter(self, given: str) -> None:
        token = self.server.known(given)
        if token is None:
            raise _RefusedError(
                HTTPStatus.FORBIDDEN,
                "The token is not the one that was printed when this server was started.",
            )
        self._token = token
        self.server.places.keep(self.connection)
        self._name_page(cookies={self.server.cookie: token})

    def _ask_name(self) -> None:
        self._entered()
        self._name_page()

    def _name_page(
        self,
        status: HTTPStatus = HTTPStatus.OK,
        *,
        problem: str = "",
        cookies: Mapping[str, str] | None = None,
    ) -> None:
        """Ask who is reviewing, or show whose link this is."""
        # a page, not a redirect: what a link of another site leads to gets no strict cookie
        owner = self.server.owner(self._token)
        page = render_name(
            self.server.session.corpus,
            _csrf(self._token, ""),
            name=owner or self._cookie(_REVIEWER),
            owned=bool(owner),
            problem=problem,
        )
        self._send(status, page, cookies=cookies)

    def _queue(self) -> None:
        self._entered()
        session = self.server.session
        self._send(HTTPStatus.OK, render_queue(session.queue(), session.corpus, served=True))

    def _name(self) -> None:
        self._entered()
        given = self._form("").get("reviewer", "")
        try:
            name = self.server.owner(self._token) or self.server.session.name(given)
        except InputError as error:
            self._name_page(HTTPStatus.UNPROCESSABLE_ENTITY, problem=str(error))
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
        form = self._form(reviewer)
        if not self.server.bind(self._token, reviewer):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "This link is another reviewer's.")
        return reviewer, form

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
        # the whole value: `evil@127.0.0.1` and `127.0.0.1/evil` have the right host in them
        found = _HOST.fullmatch(given[0].lower()) if len(given) == 1 else None
        if found is None or found[1].strip("[]") not in self.server.names:
            raise _RefusedError(
                HTTPStatus.FORBIDDEN,
                "This page answers only under the address that was printed when it was started.",
            )

    def _entered(self) -> str | None:
        """Return the reviewer, None without a name; refuse those without the link."""
        token = self.server.known(self._cookie(self.server.cookie))
        if token is None:
            raise _RefusedError(
                HTTPStatus.FORBIDDEN, "Open the link that was printed when this server was started."
            )
        self._token = token
        self.server.places.keep(self.connection)
        try:
            return self.server.owner(token) or self.server.session.name(self._cookie(_REVIEWER))
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
        if (
            self._is_elsewhere()
            or len(form) < len(pairs)
            or not hmac.compare_digest(
                form.get("csrf", "").encode(), _csrf(self._token, reviewer).encode()
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

    def _is_elsewhere(self) -> bool:
        """Whether a browser says that the form is another site's."""
        # under our no-referrer policy browsers send the origin `null` with the page's own forms
        host = self.headers.get("Host", "")
        own = (None, "null", f"http://{host}", f"https://{host}")
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        return site not in ("same-origin", "none") or self.headers.get("Origin") not in own

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
