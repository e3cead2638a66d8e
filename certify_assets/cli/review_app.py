"""The pages and forms of the review server: who asks, what they may ask for, and the answer."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from certify_assets.cli.output import complain
from certify_assets.cli.review_links import KEPT_SECONDS, Links
from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.reports.review_page import (
    Reviewer,
    render_message,
    render_queue,
    render_review,
    script_hash,
    style_hash,
)
from certify_assets.reports.review_run import whole_text

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from certify_assets.operations.review_session import ReviewSession

#: of what is not wanted, read before it is refused: a close would take the answer back
_DRAINED: Final = 1 << 20
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z.\-]+)(:[0-9]{1,5})?")
_NOT_WRITTEN: Final = "This label could not be written; those before it stand. Send it again."
_ALTERED: Final = (
    "Files of this corpus are not what was written, so no label is taken. Those that you gave are "
    "stored; whoever serves this page sees on its console what to restore."
)
_HEADERS: Final = {
    "Server": "certify",
    # a connection a request, so that no idle one stays open
    "Connection": "close",
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
    #: from the first byte of a request to the last of the answer
    seconds: float = 20.0
    #: until the headers are complete
    header_seconds: float = 5.0
    #: at the same time, of all clients
    connections: int = 256


@dataclass(frozen=True)
class Site:
    """Where the pages are: names of the host, path of a proxy, cookie, encryption."""

    names: frozenset[str]
    #: name of the token's cookie: another port of this host may serve another corpus
    cookie: str
    prefix: str = ""
    secure: bool = False


def answer(
    status: HTTPStatus | int,
    page: str = "",
    *,
    headers: Mapping[str, str] | None = None,
    script: str = "",
    media_type: str = "text/html",
) -> Response:
    """Return a page that forbids framing, storing, and every script but the one of that hash."""
    policy = (
        f"default-src 'none'; {f'script-src {script}; ' if script else ''}"
        f"style-src {style_hash()}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    made = {**_HEADERS, "Content-Security-Policy": policy, **(headers or {})}
    data = page.encode("utf-8", errors="replace")
    return Response(data, int(status), headers=made, media_type=media_type)


def not_understood(status: int) -> Response:
    """Refuse what is not HTTP without repeating it."""
    sentence = "This is no request that the review page answers."
    return answer(status, render_message("Not understood", sentence, onward=False))


class ReviewApp:
    """The pages of one review session, for those who have a link.

    Requests that name another host than `site` are refused, so that no other site can reach the
    page by a name of its own.
    """

    def __init__(
        self, session: ReviewSession, links: Links, site: Site, limits: ReviewLimits
    ) -> None:
        self.session, self.links, self.site, self.limits = session, links, site, limits
        posts = {
            "/label": self._label,
            "/skip": self._skip,
            "/undo": self._undo,
            "/again": self._again,
        }
        self.pages = Starlette(
            routes=[
                Route("/", self._home),
                *(Route(path, form, methods=["POST"]) for path, form in posts.items()),
                Route("/queue", self._queue),
                Route("/text", self._text),
            ],
            exception_handlers={
                HTTPException: self._refused,
                CertifyError: self._failed,
                OSError: self._failed,
                ClientDisconnect: lambda *_: answer(HTTPStatus.BAD_REQUEST),
                Exception: lambda *_: not_understood(HTTPStatus.INTERNAL_SERVER_ERROR),
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, once its form has been read."""
        # whether a proxy takes its prefix off the path or leaves it
        inner = scope["path"].removeprefix(self.site.prefix) or "/"
        scope["root_path"], scope["path"] = self.site.prefix, self.site.prefix + inner
        request = Request(scope, receive)
        request.state.connection.begin()
        token = unquote(request.cookies.get(self.site.cookie, ""))
        request.state.token, request.state.reviewer = token, self.links.reviewer(token)
        if request.state.reviewer is not None:
            request.state.connection.keep()
        try:
            request.state.form = await self._read(request)
            if self._is_ours(request):
                await self.pages(scope, receive, send)
            else:
                sentence = (
                    "This page answers only under the address that was printed when it was started."
                )
                refused = self._refused(request, _refusal(HTTPStatus.FORBIDDEN, sentence))
                await refused(scope, receive, send)
        except ClientDisconnect:
            return

    async def _read(self, request: Request) -> bytes:
        """Read the body of a request, as much of it as a form may have."""
        body, seen = b"", 0
        async for piece in request.stream():
            seen += len(piece)
            body = (body + piece)[: self.limits.body_bytes + 1]
            if seen >= _DRAINED:
                break
        return body

    def _is_ours(self, request: Request) -> bool:
        """Whether a request names the host under which the page is."""
        given = request.headers.getlist("host")
        # the whole value: `evil@127.0.0.1` and `127.0.0.1/evil` have the right host in them
        found = _HOST.fullmatch(given[0].lower()) if len(given) == 1 else None
        return found is not None and found[1].strip("[]") in self.site.names

    # Starlette runs what is no coroutine in a thread, so that reading the queue stops nobody

    def _home(self, request: Request) -> Response:
        given = request.query_params.get("token")
        if given is not None:
            return self._enter(request, given)
        session, reviewer = self.session, self._entered(request)
        who = Reviewer(reviewer, _csrf(request.state.token))
        shown, said = session.shown(reviewer), session.last(reviewer)
        undone = session.undone(reviewer)
        if shown is not None:
            page = render_review(
                shown,
                said,
                session.corpus,
                who,
                news=session.news(),
                undone=undone,
                blind=session.blind,
            )
            return answer(HTTPStatus.OK, page, script=script_hash())
        skipped = session.skipped(reviewer)
        sentence = f"You skipped {skipped}. " if skipped else ""
        if tied := session.tied():
            sentence += f"{tied} runs are disputed and need a third reviewer. "
        sentence += " ".join([*session.news(), "New runs appear here when they are decided."])
        if broken := session.unreadable():
            sentence += f" {len(broken)} runs of the queue cannot be shown: {broken[0]}"
        page = render_message(
            "Nothing is left for you",
            sentence,
            corpus=session.corpus,
            reviewer=who,
            said=said,
            undone=undone,
            skipped=skipped,
        )
        return answer(HTTPStatus.OK, page)

    def _enter(self, request: Request, given: str) -> Response:
        """Keep the token in the browser, and show whose link this is."""
        reviewer = self.links.reviewer(given)
        if reviewer is None:
            raise _refusal(
                HTTPStatus.FORBIDDEN,
                "The token is not the one that was printed when this server was started.",
            )
        # a page, not a redirect: what a link of another site leads to gets no strict cookie
        sentence = (
            f"Your labels are stored under this name. This link is {reviewer}'s alone; other "
            "reviewers need links of their own."
        )
        answered = self._message(HTTPStatus.OK, reviewer, sentence)
        answered.set_cookie(
            self.site.cookie,
            given,
            max_age=KEPT_SECONDS if self.links.lasting else None,
            path=f"{self.site.prefix}/",
            secure=self.site.secure,
            httponly=True,
            samesite="strict",
        )
        return answered

    def _queue(self, request: Request) -> Response:
        self._entered(request)
        session = self.session
        if session.blind:
            # its counts, and the tasks that it lists, would say which runs are no part of it
            return self._message(
                HTTPStatus.OK,
                "Not shown",
                "Known runs are mixed into the queue, which is therefore not listed here.",
            )
        agreement = session.agreement()
        page = render_queue(session.queue(), session.corpus, served=True, agreement=agreement)
        return answer(HTTPStatus.OK, page)

    def _text(self, request: Request) -> Response:
        """Show a run as text, whole, to a reviewer whom it was shown to."""
        reviewer = self._entered(request)
        run = self.session.opened(reviewer, request.query_params.get("run", ""))
        return answer(HTTPStatus.OK, whole_text(run), media_type="text/plain")

    def _label(self, request: Request) -> Response:
        reviewer, form = self._signed(request)
        outcome = {"0": 0, "1": 1}.get(form.get("outcome", ""))
        if outcome is None:
            raise _refusal(HTTPStatus.BAD_REQUEST, "The form says neither success nor failure.")
        number, comment = _number(form, "number"), form.get("comment", "")
        self.session.say(reviewer, form.get("run", ""), outcome, number, comment)
        return self._redirect("/")

    def _skip(self, request: Request) -> Response:
        reviewer, form = self._signed(request)
        self.session.skip(reviewer, form.get("run", ""))
        return self._redirect("/")

    def _undo(self, request: Request) -> Response:
        reviewer, form = self._signed(request)
        self.session.take_back(reviewer, _number(form, "line"))
        return self._redirect("/")

    def _again(self, request: Request) -> Response:
        reviewer, _ = self._signed(request)
        self.session.show_skipped(reviewer)
        return self._redirect("/")

    def _signed(self, request: Request) -> tuple[str, dict[str, str]]:
        """Return the reviewer and the form, where both belong together."""
        return self._entered(request), self._form(request)

    def _entered(self, request: Request) -> str:
        """Return the reviewer; refuse those without a link."""
        if request.state.reviewer is None:
            raise _refusal(
                HTTPStatus.FORBIDDEN,
                "Open the link that was printed when this server was started.",
            )
        return str(request.state.reviewer)

    def _form(self, request: Request) -> dict[str, str]:
        """Return the form, which must be of this site and of this reviewer."""
        body, length = request.state.form, int(request.headers.get("content-length", "0"))
        if len(body) > self.limits.body_bytes:
            raise _refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too long; shorten the comment."
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise _refusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "This is not one of the page's forms."
            )
        if len(body) < length:
            raise _refusal(HTTPStatus.BAD_REQUEST, "The form ended early; send it again.")
        try:
            pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict")
        except ValueError:
            raise _refusal(
                HTTPStatus.BAD_REQUEST, "The form cannot be read; go back and send it again."
            ) from None
        form, field = dict(pairs), _csrf(request.state.token)
        given = form.get("csrf", "").encode()
        doubled = len(form) < len(pairs)
        if _is_elsewhere(request) or doubled or not hmac.compare_digest(given, field.encode()):
            raise _refusal(
                HTTPStatus.FORBIDDEN,
                "This form was not made by this page for you; go back to the queue and send it "
                "from there.",
            )
        return form

    def _redirect(self, where: str) -> Response:
        return answer(HTTPStatus.SEE_OTHER, headers={"Location": self.site.prefix + where})

    def _message(self, status: int, title: str, sentence: str, *, onward: bool = True) -> Response:
        page = render_message(title, sentence, corpus=self.session.corpus, onward=onward)
        return answer(status, page)

    def _refused(self, request: Request, error: Any) -> Response:
        if error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
            error = _refusal(HTTPStatus.NOT_FOUND, "There is no such page here.")
        # links of a page are relative, so that they hold below any prefix
        nested = request.scope["path"].count("/") > self.site.prefix.count("/") + 1
        onward = error.status_code != HTTPStatus.FORBIDDEN and not nested
        return self._message(error.status_code, "Refused", error.detail, onward=onward)

    def _failed(self, request: Request, error: Any) -> Response:
        """Answer what a page or form raised."""
        if isinstance(error, InputError):
            return self._message(HTTPStatus.CONFLICT, "Not done", str(error))
        # where files are is for who serves the page, not for reviewers
        complain(str(error))
        altered = isinstance(error, IntegrityError)
        return self._message(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "Not done" if altered else "Not written",
            _ALTERED if altered else _NOT_WRITTEN,
        )


def _csrf(token: str) -> str:
    """Return the hidden field of the forms of a link."""
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()


def _refusal(status: HTTPStatus, sentence: str) -> HTTPException:
    """Return the refusal of a request that is not answered with what it asks for."""
    return HTTPException(status, sentence)


def _is_elsewhere(request: Request) -> bool:
    """Whether the browser says that the form is another site's."""
    # under our no-referrer policy browsers send the origin `null` with the page's own forms
    host = request.headers.get("host", "")
    own = (None, "null", f"http://{host}", f"https://{host}")
    site = request.headers.get("sec-fetch-site", "same-origin")
    return site not in ("same-origin", "none") or request.headers.get("origin") not in own


def _number(form: Mapping[str, str], name: str) -> int:
    given = form.get(name, "")
    if not (given.isascii() and given.isdigit() and len(given) < 12):
        raise _refusal(
            HTTPStatus.BAD_REQUEST, f"The form's {name} is no number; go back and send it again."
        )
    return int(given)
