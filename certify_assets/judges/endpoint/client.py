"""One JSON request to a server: paced, and sent again where that may help."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self

from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, parse_json
from certify_assets.judges.endpoint.settings import Server

if TYPE_CHECKING:
    import aiohttp

_LONGEST_BACKOFF = 30.0


class Pace:
    """Lets units through at an even rate; what was estimated wrongly is put right afterwards."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds = 60.0 / per_minute if per_minute else 0.0
        self._free = 0.0

    async def wait(self, units: float) -> None:
        """Wait until so many units may go."""
        now = time.monotonic()
        start = max(now, self._free)
        self._free = start + units * self._seconds
        if start > now:
            await asyncio.sleep(start - now)

    def correct(self, units: float) -> None:
        """Add units that were used beyond the estimate; negative where fewer were."""
        self._free += units * self._seconds


class Pause:
    """A wait that every worker keeps: a server that says 429 to one says it to all."""

    def __init__(self) -> None:
        self._until = 0.0

    def extend(self, seconds: float) -> None:
        """Let nothing go for so many seconds from now."""
        self._until = max(self._until, time.monotonic() + seconds)

    async def wait(self) -> None:
        """Wait until the pause is over, also when it is extended meanwhile."""
        while (left := self._until - time.monotonic()) > 0:
            await asyncio.sleep(left)


def backoff_seconds(attempt: int, first: float) -> float:
    """Return a random wait before attempt + 1: 50 to 150 % of first · 2^(attempt − 1)."""
    # random, so that workers that failed together part
    return float(min(first * 2 ** (attempt - 1), _LONGEST_BACKOFF) * random.uniform(0.5, 1.5))


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float | None:
    """Read a Retry-After header (RFC 9110, 10.2.3): seconds or a date; else None."""
    if value is None:
        return None
    text = value.strip()
    if text.replace(".", "", 1).isdecimal() and text.isascii():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


_LOG = logging.getLogger(__name__)
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SHOWN = 300


class RefusedError(CertifyError):
    """The server understood one request and declined it: asking again would end the same way."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"the server declined with status {status}: {said}")
        self.status = status


class UnavailableError(CertifyError):
    """The server did not answer, however often it was asked; status 0 is no response at all."""

    def __init__(self, said: str, status: int = 0) -> None:
        super().__init__(said)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    reason: str
    body: Any = None
    wait: float | None = None
    final: bool = False


class Client:
    """A session with one server; use it in ``async with``."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.requests = 0
        self.retries = 0
        self._key = server.key()
        self._login = server.login()
        self._pause = Pause()
        self._requests = Pace(server.requests_per_minute)
        self._tokens = Pace(server.tokens_per_minute)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        elif self._login is not None:
            headers["Authorization"] = aiohttp.encode_basic_auth(*self._login)
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=self.server.timeout_seconds),
            # the number of workers is the bound; waiting for a connection would count as time-out
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, url: str, payload: Any, *, tokens: int = 0) -> dict[str, Any]:
        """Send a request until it is answered."""
        reason, status = "", 0
        for attempt in range(1, self.server.attempts + 1):
            if attempt > 1:
                self.retries += 1
                _LOG.info("attempt %d: %s", attempt, reason)
            response = await self._send(url, payload, tokens)
            if response.status == 200 and isinstance(response.body, dict):
                self._tokens.correct(_used(response.body.get("usage")) - tokens)
                return response.body
            reason, status = response.reason, response.status
            if response.final:
                break
            self._check(response)
            if attempt < self.server.attempts:
                await self._wait(attempt, response)
        raise UnavailableError(f"{self.server.plain_url} did not answer: {reason}", status)

    async def _send(self, url: str, payload: Any, tokens: int) -> _Response:
        import aiohttp

        assert self._session is not None
        await self._tokens.wait(tokens)
        await self._requests.wait(1)
        await self._pause.wait()
        self.requests += 1
        method = "GET" if payload is None else "POST"
        data = None if payload is None else canonical_json(payload)
        try:
            async with self._session.request(
                method, url, data=data, allow_redirects=False
            ) as response:
                return await self._read(response)
        except TimeoutError:
            return _Response(0, f"no complete response within {self.server.timeout_seconds:g} s")
        except (aiohttp.ClientError, OSError, EOFError) as error:
            return _Response(
                0,
                "the connection failed "
                f"({self._strike(type(error).__name__ + ': ' + str(error))[:_SHOWN]})",
            )

    async def _read(self, response: aiohttp.ClientResponse) -> _Response:
        wait = retry_after_seconds(response.headers.get("Retry-After"))
        raw = bytearray()
        async for chunk in response.content.iter_chunked(1 << 16):
            raw += chunk
            if len(raw) > self.server.longest_body:
                return _Response(
                    response.status,
                    f"its response is longer than {self.server.longest_body} bytes",
                    final=True,
                )
        try:
            body = self._strike(parse_json(raw.decode("utf-8")))
        except (ValueError, RecursionError):
            body = None
        if response.status == 200:
            # some gateways report their own errors with status 200
            failed = isinstance(body, dict) and body.get("error") and not body.get("choices")
            if isinstance(body, dict) and not failed:
                return _Response(200, "", body)
            said = (
                f"status 200 with an error: {self._said(body, raw)}"
                if failed
                else "status 200 with a body that is no JSON object"
            )
            return _Response(502, said, wait=wait)
        return _Response(
            response.status, f"status {response.status}: {self._said(body, raw)}", wait=wait
        )

    def _check(self, response: _Response) -> None:
        status, shown = response.status, self.server.plain_url
        if status in (401, 403):
            where = (
                f"the key in {self.server.key_variable}"
                if self.server.key_variable
                else "a request without a key; set key_variable"
            )
            raise InputError(f"{shown} refused {where} ({response.reason}).")
        if 300 <= status < 400:
            raise InputError(
                f"{shown} redirects elsewhere ({response.reason}); give the address it redirects "
                "to as the base URL."
            )
        if status and status not in _RETRIED and status < 500:
            raise RefusedError(status, response.reason.partition(": ")[2])
        if response.wait is not None and response.wait > self.server.longest_wait_seconds:
            raise InputError(
                f"{shown} asks to wait {response.wait:.0f} s, longer than the "
                f"{self.server.longest_wait_seconds:g} s allowed; "
                "score again later: what was answered is kept."
            )

    async def _wait(self, attempt: int, response: _Response) -> None:
        if response.wait is not None:
            self._pause.extend(response.wait)
        await asyncio.sleep(backoff_seconds(attempt, self.server.first_wait_seconds))

    def _said(self, body: Any, raw: bytearray) -> str:
        error = (
            body.get("error", body.get("detail", body.get("message")))
            if isinstance(body, dict)
            else None
        )
        text = error.get("message") if isinstance(error, dict) else error
        # struck out before it is cut short: half a key is a secret too
        found = self._strike(text if isinstance(text, str) else raw.decode("utf-8", "replace"))
        return " ".join(found.split())[:_SHOWN]

    def _strike(self, value: Any) -> Any:
        if isinstance(value, str):
            # JSON can spell half a character, which no file can hold
            value = value.encode("utf-8", "replace").decode("utf-8")
            for secret in (self._key, self._login and self._login[1]):
                value = value.replace(secret, "[key]") if secret else value
            return value
        if isinstance(value, list):
            return [self._strike(item) for item in value]
        if isinstance(value, dict):
            return {self._strike(name): self._strike(item) for name, item in value.items()}
        return value


def _used(usage: Any) -> int:
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and 0 <= total < 1 << 40 else 0
