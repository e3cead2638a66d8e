"""Requests to an OpenAI-compatible server, with rate limits and retries."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self

from certify_assets.errors import CertifyError, InputError
from certify_assets.files import parse_json

if TYPE_CHECKING:
    import httpx2
    import openai

    from certify_assets.judges.endpoint.settings import EndpointEntry

_SHOWN = 300
_RETRIED = frozenset({408, 409, 429})
#: that a request carries, besides who asks
_HEADERS = frozenset(
    {
        *("host", "accept", "accept-encoding", "connection", "user-agent"),
        *("content-type", "content-length"),
    }
)


class RefusedError(CertifyError):
    """The server understood a request and declined it; a retry would not help."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"the server declined with status {status}: {said}")
        self.status = status


class UnavailableError(CertifyError):
    """The server did not answer after all retries; status 0 means no response."""

    def __init__(self, said: str, status: int = 0) -> None:
        super().__init__(said)
        self.status = status


class Pace:
    """Lets units through at an even rate; wrong estimates are corrected afterwards."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds = 60.0 / per_minute if per_minute else 0.0
        self._free = 0.0

    async def wait(self, units: float) -> None:
        """Wait until this many units are allowed."""
        now = time.monotonic()
        start = max(now, self._free)
        self._free = start + units * self._seconds
        await asyncio.sleep(start - now)

    def correct(self, units: float) -> None:
        """Add units used beyond the estimate; negative if fewer were used."""
        self._free += units * self._seconds


class Client:
    """A session with one server; use it in ``async with``.

    The openai package sends, waits and sends again; it honours Retry-After up to two minutes.
    """

    def __init__(self, entry: EndpointEntry, *, key: str | None) -> None:
        self.entry = entry
        #: sent to the server, those sent again included
        self.requests = 0
        self.retries = 0
        self._key = key
        self._requests = Pace(entry.requests_per_minute)
        self._tokens = Pace(entry.tokens_per_minute)
        self._api: openai.AsyncOpenAI | None = None

    async def __aenter__(self) -> Self:
        import httpx2
        import openai

        self._api = openai.AsyncOpenAI(
            # the transport says who asks
            api_key="unused",
            base_url=self.entry.plain_url,
            max_retries=self.entry.attempts - 1,
            timeout=self.entry.timeout_seconds,
            http_client=httpx2.AsyncClient(
                transport=self._transport(),
                follow_redirects=False,
                timeout=self.entry.timeout_seconds,
            ),
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._api is not None:
            await self._api.close()

    async def ask(self, url: str, payload: Any, *, tokens: int = 0) -> dict[str, Any]:
        """Return the answer to a request; a GET if the payload is None.

        Parameters
        ----------
        url : str
        payload : JSON object or None
        tokens : int
            Estimate of the tokens that it uses, for the pace.

        Raises
        ------
        InputError
            If no request can succeed, because of a wrong key or address.
        RefusedError, UnavailableError

        """
        import httpx2
        import openai

        assert self._api is not None
        await self._tokens.wait(tokens)
        try:
            if payload is None:
                answer = await self._api.get(url, cast_to=httpx2.Response)
            else:
                answer = await self._api.post(url, body=payload, cast_to=httpx2.Response)
        except openai.APIStatusError as error:
            raise self._refusal(error.status_code, error.response.content) from None
        except openai.APITimeoutError:
            raise self._silence(
                f"no complete response within {self.entry.timeout_seconds:g} s"
            ) from None
        except openai.APIConnectionError as error:
            cause = self._strike(str(error.__cause__ or error))[:_SHOWN]
            raise self._silence(f"the connection failed ({cause})") from None
        body: dict[str, Any] = self._strike(_json_object(answer.content))
        self._tokens.correct(_used(body.get("usage")) - tokens)
        return body

    def _transport(self) -> httpx2.AsyncBaseTransport:
        """Return a transport that keeps the pace; an invalid answer becomes status 502."""
        import httpx2

        client = self

        class Transport(httpx2.AsyncHTTPTransport):
            async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
                # a request that is sent again keeps to the pace as well
                await client._requests.wait(1)
                client.requests += 1
                client.retries += request.headers.get("X-Stainless-Retry-Count", "0") != "0"
                client._identify(request)
                try:
                    async with asyncio.timeout(client.entry.timeout_seconds):
                        response = await super().handle_async_request(request)
                        body = await response.aread()
                except TimeoutError:
                    raise httpx2.ReadTimeout("no complete response", request=request) from None
                status, wait = response.status_code, response.headers.get("Retry-After")
                if status < 300 and _json_object(body) is None:
                    status = 502
                headers = {"Retry-After": wait} if wait else {}
                return httpx2.Response(status, headers=headers, content=body, request=request)

        # the number of workers is the bound
        return Transport(limits=httpx2.Limits(max_connections=None))

    def _identify(self, request: httpx2.Request) -> None:
        """Send only the key of this server, no credentials from the environment for others."""
        for name in [*request.headers]:
            if name.lower() not in _HEADERS:
                del request.headers[name]
        if self._key is not None:
            request.headers["Authorization"] = f"Bearer {self._key}"

    def _silence(self, reason: str, status: int = 0) -> UnavailableError:
        return UnavailableError(f"{self.entry.plain_url} did not answer: {reason}", status)

    def _refusal(self, status: int, body: bytes) -> CertifyError:
        shown, said = self.entry.plain_url, self._said(body)
        reason = f"status {status}: {said}"
        if status in (401, 403):
            where = (
                f"the key in {self.entry.key_variable}"
                if self.entry.key_variable
                else "a request without a key; set key_variable"
            )
            return InputError(f"{shown} refused {where} ({reason}).")
        if 300 <= status < 400:
            return InputError(
                f"{shown} redirects elsewhere ({reason}); give the address it redirects to as url."
            )
        if status < 500 and status not in _RETRIED:
            return RefusedError(status, said)
        return self._silence(reason, status)

    def _said(self, raw: bytes) -> str:
        body = _parsed(raw)
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
        """Remove the key from a server's text."""
        if isinstance(value, str):
            # JSON can spell half a character, which no file can hold
            value = value.encode("utf-8", "replace").decode("utf-8")
            return value.replace(self._key, "[key]") if self._key else value
        if isinstance(value, list):
            return [self._strike(item) for item in value]
        if isinstance(value, dict):
            return {self._strike(name): self._strike(item) for name, item in value.items()}
        return value


def _json_object(raw: bytes) -> dict[str, Any] | None:
    """Return the object of an answer; None if it is not one, or a gateway's error."""
    body = _parsed(raw)
    if not isinstance(body, dict) or (body.get("error") and not body.get("choices")):
        return None
    return body


def _parsed(raw: bytes) -> Any:
    try:
        return parse_json(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def _used(usage: Any) -> int:
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and 0 <= total < 1 << 40 else 0
