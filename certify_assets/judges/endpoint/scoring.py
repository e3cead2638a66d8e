"""Score texts by a server: a limited number of requests at once, and every answer is kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.files import canonical_json, lock_file, parse_json, sha256_bytes
from certify_assets.judges.endpoint.client import Client, RefusedError, UnavailableError
from certify_assets.judges.endpoint.questions import (
    MisshapenError,
    Reply,
    characters,
    payload,
    read_answer,
)

_T = TypeVar("_T")
# a scoring in which so many answers show no verdict would cost all the same and give no score
_SILENT = 50
#: what a server says of itself; an answer is reused for the same server, model and version only
Identity = Mapping[str, str | int]


class AnswerJournal:
    """The answers of earlier scorings, and an open file for new ones.

    The file belongs to one process at a time. Each answer is a line, written at once, so that an
    interrupted scoring can resume.

    Parameters
    ----------
    path : Path or None
        File of new answers; with None they are not kept.
    kept : sequence of bytes
        The content of such files of earlier scorings.
    """

    def __init__(self, path: Path | None, kept: Sequence[bytes] = ()) -> None:
        self._known: dict[str, Any] = {}
        self._handle = -1
        for data in kept:
            self._load("the answers of an earlier scoring", data)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise InputError(
                f"{path} cannot be opened ({error.strerror}); give another file for the answers."
            ) from None
        try:
            if not lock_file(self._handle, wait=False):
                raise InputError(
                    f"{path} is in use by another scoring; wait for it, or give another file for "
                    "the answers."
                )
            data = path.read_bytes()
            # a kill in the middle of a write leaves a part of a line, which was never an answer
            whole = data.rfind(b"\n") + 1
            os.ftruncate(self._handle, whole)
            self._load(str(path), data[:whole])
        except BaseException:
            os.close(self._handle)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._handle >= 0:
            os.fsync(self._handle)
            os.close(self._handle)
            self._handle = -1

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> Any:
        """Return the answer kept under a key, or None."""
        return self._known.get(key)

    def put(self, key: str, answer: Any) -> None:
        """Keep an answer."""
        data = canonical_json({"key": key, "answer": answer}) if self._handle >= 0 else b""
        while data:
            data = data[os.write(self._handle, data) :]
        self._known[key] = answer

    def _load(self, name: str, data: bytes) -> None:
        for number, text in enumerate(data.splitlines(), 1):
            try:
                line = parse_json(text.decode("utf-8"))
                self._known[line["key"]] = line["answer"]
            except (ValueError, TypeError, KeyError):
                raise IntegrityError(
                    f"{name}, line {number} is not a kept answer. Delete the file and ask the "
                    "server again."
                ) from None


class NotKeptError(CertifyError):
    """A scoring that may not ask the server needs an answer that was not kept."""


def complete(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, even if an event loop is already running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@dataclass(slots=True)
class Scoring:
    """A scoring of texts and its results; equal texts are asked once."""

    client: Client
    journal: AnswerJournal
    identity: Identity
    texts: Sequence[str]
    # take answers from the journal alone: a text whose answer it does not hold stays unscored
    replay: bool = False
    progress: Callable[[int, int], None] = lambda *_: None
    # by number of the text and of its request
    replies: dict[tuple[int, int], Reply] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)  # why a text has none: refused or failed
    # number of answers that the server was asked for now
    fresh: int = 0
    complaint: str = ""
    done: int = 0
    # questions whose answer showed no verdict, until one does
    silent: int | None = 0

    @property
    def cache_hits(self) -> int:
        """Number of answers that were kept earlier."""
        return len(self.replies) - self.fresh

    async def run(self) -> None:
        """Send every request of every text."""
        entry, rows = self.client.entry, dict[str, list[int]]()
        for row, text in enumerate(self.texts):
            rows.setdefault(text, []).append(row)
        jobs = iter([(text, index) for text in rows for index in range(entry.votes)])
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(entry.concurrency, len(rows) * entry.votes)):
                    group.create_task(self._work(jobs, rows))
        except* CertifyError as errors:
            raise _first(errors) from None
        if self.texts and len(self.lost) == len(self.texts):
            raise InputError(
                f"none of {len(self.texts)} texts was answered: {self.complaint.rstrip('.')}; "
                "check the model's name and the settings."
            )

    async def _work(
        self, jobs: Iterator[tuple[str, int]], rows: Mapping[str, Sequence[int]]
    ) -> None:
        for text, index in jobs:
            if rows[text][0] not in self.lost:
                await self._answer(text, index, rows[text])
            self.done += len(rows[text])
            self.progress(self.done, len(self.texts) * self.client.entry.votes)

    async def _answer(self, text: str, index: int, rows: Sequence[int]) -> None:
        try:
            reply = await self._reply(text, index)
        except RefusedError as error:
            self._lose(rows, "refused", error)
        except (UnavailableError, MisshapenError, NotKeptError) as error:
            self._lose(rows, "failed", error)
        else:
            self.replies |= {(row, index): reply for row in rows}
            self._stop_where_nothing_is_read(reply)

    async def _reply(self, text: str, index: int) -> Reply:
        """Return the kept answer, or ask the server and keep its answer."""
        entry = self.client.entry
        body = payload(entry, text, index)
        url = entry.plain_url + ("/chat/completions" if "messages" in body else "/completions")
        asked = {"server": dict(self.identity), "url": url, "payload": body}
        key = sha256_bytes(canonical_json(asked))
        if (known := self.journal.get(key)) is not None:
            return Reply.from_dict(known)
        if self.replay:
            raise NotKeptError("the answer was not kept.")
        # a quarter of the characters, and the longest answer
        question = body.get("messages") or body["prompt"]
        tokens = characters(question) // 4 + int(body.get("max_tokens") or 0)
        reply = read_answer(entry, await self.client.ask(url, body, tokens=tokens))
        self.journal.put(key, reply.to_dict())
        self.fresh += 1
        return reply

    def _stop_where_nothing_is_read(self, reply: Reply) -> None:
        entry = self.client.entry
        if reply.reason != "missing" or self.silent is None:
            self.silent = None
            return
        self.silent += 1
        if entry.mode == "logprob" and self.silent == _SILENT:
            words = " and ".join(map(repr, entry.words))
            raise InputError(
                f"none of the first {_SILENT} answers of {entry.plain_url} has {words} among its "
                "likeliest tokens; ask in another form, or choose asking cot."
            )

    def _lose(self, rows: Sequence[int], reason: str, error: CertifyError) -> None:
        entry = self.client.entry
        if isinstance(error, RefusedError) and error.status in (404, 405):
            raise InputError(
                f"{entry.plain_url} has no model {entry.model!r} at this route ({error}); check "
                "URL and model."
            )
        self.lost |= dict.fromkeys(rows, reason)
        self.complaint = self.complaint or str(error)
        failed = sum(why == "failed" for why in self.lost.values())
        if failed > entry.max_failed and not self.replay:
            raise UnavailableError(
                f"text {rows[0] + 1} of {len(self.texts)} was not answered "
                f"({str(error).rstrip('.')}); {len(self.journal)} answers are kept, "
                "score again to resume, or allow failed texts by max_failed."
            )


def _first(errors: BaseExceptionGroup[CertifyError]) -> CertifyError:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, CertifyError)
    return found


async def identify(client: Client) -> Identity:
    """Identify a server."""
    entry = client.entry
    listed = (await _told(client, f"{entry.plain_url}/models")).get("data")
    root = entry.plain_url.removesuffix("/v1")
    version = (await _told(client, f"{root}/version")).get("version")
    found: dict[str, str | int] = {"url": entry.plain_url, "revision": entry.revision}
    found["version"] = version if isinstance(version, str) else ""
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and item.get("id") == entry.model:
            names = ("parent", "max_model_len", "owned_by")
            found |= {name: item[name] for name in names if isinstance(item.get(name), (str, int))}
            break
    return found


async def _told(client: Client, url: str) -> Mapping[str, Any]:
    try:
        return await client.ask(url, None)
    except UnavailableError as error:
        if not error.status:
            raise UnavailableError(f"{error}; start the server, or correct the url.") from None
    except CertifyError:
        # a server, or a key, may be good for verdicts and not for this; whether it is, the first
        # verdict says
        pass
    return {}
