"""The pages and forms of the review server: who asks, what they may ask for, and the answer."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from certify_assets.cli.output import complain
from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.files import canonical_json, write_atomic
from certify_assets.reports.review_page import (
    Reviewer,
    render_message,
    render_queue,
    render_review,
    script_hash,
    style_hash,
)
from certify_assets.reports.review_run import whole_text
from certify_assets.words import number_of

if TYPE_CHECKING:
    from certify_assets.operations.review_session import ReviewSession
    from certify_assets.storage.store import Store

    Form = Mapping[str, str]

#: a browser may keep a cookie for 400 days, not longer
_KEPT_SECONDS: Final = 400 * 24 * 3600
_FORM_BYTES: Final = 16_384
_NOT_WRITTEN: Final = "This label could not be stored; earlier ones are. Send it again."
_ALTERED: Final = (
    "Files of this corpus have changed on disk, so no label is accepted. Your earlier labels are "
    "stored. The console of the server says what to restore."
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


def link_tokens(store: Store, corpus: str, names: Sequence[str]) -> dict[str, str]:
    """Return a token for each reviewer, the same as long as the key on this machine is."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"the reviewer {twice!r} is named twice. Name each reviewer once.")
    file = store.scratch("review") / "key"
    if not file.exists():
        write_atomic(file, secrets.token_bytes(32), private=True)
    key = file.read_bytes()
    return {name: _hmac(key, canonical_json([corpus, name])) for name in names}


def _hmac(key: bytes, message: bytes) -> str:
    return hmac.new(key, message, hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Site:
    """Where the pages are, and who has a link to them."""

    #: by the names of reviewers
    tokens: Mapping[str, str]
    hosts: Sequence[str]
    #: name of the token's cookie: another port of this host may serve another corpus
    cookie: str
    path: str
    #: whether a proxy encrypts
    secure: bool

    def reviewer(self, token: str) -> str | None:
        """Return whose token it is, None for another; all of them take the same time."""
        given, found = token.encode(), None
        for name, one in self.tokens.items():
            found = name if hmac.compare_digest(given, one.encode()) else found
        return found


def _answer(
    status: int, page: str = "", *, script: str = "", media_type: str = "text/html"
) -> Response:
    """Return a page that forbids framing, storing, and every script but the one of that hash."""
    policy = (
        f"default-src 'none'; {f'script-src {script}; ' if script else ''}"
        f"style-src {style_hash()}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    headers = {**_HEADERS, "Content-Security-Policy": policy}
    data = page.encode("utf-8", errors="replace")
    return Response(data, status, headers=headers, media_type=media_type)


class ReviewPages:
    """The pages of one review session, for those who have a link.

    Requests that name another host than the site's are refused, so that no other site can reach the
    page by a name of its own.
    """

    def __init__(self, session: ReviewSession, site: Site) -> None:
        self.session, self.site = session, site

    def app(self) -> Starlette:
        """Return what answers requests."""
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=self.site.hosts, www_redirect=False)
        forms = {
            "/label": self._label,
            "/skip": lambda reviewer, form: self.session.skip(reviewer, form.get("run", "")),
            "/undo": lambda reviewer, form: self.session.take_back(reviewer, _number(form, "line")),
            "/again": lambda reviewer, _: self.session.show_skipped(reviewer),
        }
        return Starlette(
            routes=[
                # Starlette runs what is no coroutine in a thread: reading the queue stops nobody
                Route("/", self._home),
                Route("/queue", self._queue),
                Route("/text", self._text),
                *(Route(path, self._posted(do), methods=["POST"]) for path, do in forms.items()),
            ],
            middleware=[hosts],
            exception_handlers={
                HTTPException: self._refused,
                CertifyError: self._failed,
                OSError: self._failed,
                ClientDisconnect: lambda *_: _answer(HTTPStatus.BAD_REQUEST),
            },
        )

    def _home(self, request: Request) -> Response:
        if (given := request.query_params.get("token")) is not None:
            return self._enter(given)
        session, reviewer = self.session, self._entered(request)
        who = Reviewer(reviewer, _csrf(self._token(request)))
        shown, said = session.shown(reviewer), session.last(reviewer)
        if shown is not None:
            page = render_review(
                shown,
                said,
                session.corpus,
                who,
                news=session.news(),
                criteria=session.criteria,
                blind=session.blind,
            )
            return _answer(HTTPStatus.OK, page, script=script_hash())
        skipped = session.skipped(reviewer)
        sentence = f"Skipped by you: {number_of(skipped, 'run')}. " if skipped else ""
        if tied := session.tied():
            sentence += f"Disputed, for a third reviewer: {number_of(tied, 'run')}. "
        sentence += " ".join([*session.news(), "New runs appear here when they are decided."])
        if broken := session.unreadable():
            sentence += f" Cannot be shown: {number_of(len(broken), 'run')}, the first: {broken[0]}"
        page = render_message(
            "Nothing is left for you",
            sentence,
            corpus=session.corpus,
            reviewer=who,
            said=said,
            skipped=skipped,
        )
        return _answer(HTTPStatus.OK, page)

    def _enter(self, token: str) -> Response:
        """Keep the token in the browser, and show whose link this is."""
        reviewer = self.site.reviewer(token)
        if reviewer is None:
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                "This link is not valid. Use the link that the server printed at its start.",
            )
        # a page, not a redirect: what a link of another site leads to gets no strict cookie
        sentence = (
            f"Your labels are stored under this name. This link is for {reviewer} only; other "
            "reviewers have links of their own."
        )
        entered = self._message(HTTPStatus.OK, reviewer, sentence)
        entered.set_cookie(
            self.site.cookie,
            token,
            max_age=_KEPT_SECONDS,
            path=self.site.path,
            secure=self.site.secure,
            httponly=True,
            samesite="strict",
        )
        return entered

    def _queue(self, request: Request) -> Response:
        self._entered(request)
        session = self.session
        if session.blind:
            # its counts, and the tasks that it lists, would say which runs are no part of it
            sentence = "The queue is not listed, because runs of known outcome are mixed into it."
            return self._message(HTTPStatus.OK, "Not shown", sentence)
        agreement = session.agreement()
        page = render_queue(session.queue(), session.corpus, served=True, agreement=agreement)
        return _answer(HTTPStatus.OK, page)

    def _text(self, request: Request) -> Response:
        """Show a run as text, whole, to a reviewer whom it was shown to."""
        run = self.session.opened(self._entered(request), request.query_params.get("run", ""))
        return _answer(HTTPStatus.OK, whole_text(run), media_type="text/plain")

    def _label(self, reviewer: str, form: Form) -> None:
        outcome = {"0": 0, "1": 1}.get(form.get("outcome", ""))
        if outcome is None:
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, "The form says neither success nor failure."
            )
        number, comment = _number(form, "number"), form.get("comment", "")
        self.session.say(reviewer, form.get("run", ""), outcome, number, comment)

    def _posted(self, do: Callable[[str, Form], object]) -> Any:
        """Return the endpoint of a form, which must be of this site and of its reviewer."""

        async def endpoint(request: Request) -> Response:
            reviewer, body = self._entered(request), b""
            async for piece in request.stream():
                body += piece
                if len(body) > _FORM_BYTES:
                    raise HTTPException(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        "The form is too long; shorten the comment.",
                    )
            form = dict(parse_qsl(body.decode("ascii", errors="replace"), keep_blank_values=True))
            own = _csrf(self._token(request)).encode()
            if not hmac.compare_digest(form.get("csrf", "").encode(), own):
                raise HTTPException(
                    HTTPStatus.FORBIDDEN,
                    "This form was not made by this page for you; go back to the queue and send it "
                    "from there.",
                )
            await run_in_threadpool(do, reviewer, form)
            done = _answer(HTTPStatus.SEE_OTHER)
            # relative, so that it holds below the prefix of a proxy
            done.headers["Location"] = "./"
            return done

        return endpoint

    def _token(self, request: Request) -> str:
        return request.cookies.get(self.site.cookie, "")

    def _entered(self, request: Request) -> str:
        """Return the reviewer; refuse those without a link."""
        reviewer = self.site.reviewer(self._token(request))
        if reviewer is None:
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                "Open the link that was printed when this server was started.",
            )
        return reviewer

    def _message(self, status: int, title: str, sentence: str, *, onward: bool = True) -> Response:
        page = render_message(title, sentence, corpus=self.session.corpus, onward=onward)
        return _answer(status, page)

    def _refused(self, request: Request, error: Any) -> Response:
        missing = error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
        sentence = "There is no such page here." if missing else error.detail
        return self._message(error.status_code, "Refused", sentence, onward=False)

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
    return _hmac(token.encode(), b"csrf")


def _number(form: Form, name: str) -> int:
    given = form.get(name, "")
    if not (given.isascii() and given.isdigit() and len(given) < 12):
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, f"The form's {name} is no number; go back and send it again."
        )
    return int(given)
