"""Ask for every text: bounded requests in flight, each question once, every answer kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.files import canonical_json, lock_file, parse_json, sha256_bytes
from certify_assets.judges.endpoint.client import Client, RefusedError, UnavailableError
from certify_assets.judges.endpoint.questions import (
    EndpointPrompt,
    MisshapenError,
    Question,
    Reply,
    Request,
    characters,
    prompt_of,
    request,
)
from certify_assets.judges.endpoint.settings import EndpointEntry

_T = TypeVar("_T")
# a scoring in which so many answers show no verdict would cost all the same and give no score
_SILENT = 50
_NOTE = "\n[middle of the run cut]\n  "
# English text has about four characters a token, pages and code about three
_CHARACTERS = 3


class AnswerJournal:
    """The answers of earlier scorings, and an open file for new ones.

    The file belongs to one process at a time. Each answer is a line, written at once, so that a
    scoring that is killed resumes from it.

    Parameters
    ----------
    path : Path or None
        File of new answers; None keeps none.
    kept : sequence of bytes
        Such files of earlier scorings.
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
        """Return what was kept under a key, or None."""
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
                    f"{name}, line {number} is no answer that was kept. Delete the file and ask "
                    "the server again."
                ) from None


@dataclass(frozen=True)
class Connection:
    """A judge of judges.yaml and what its server said of itself."""

    entry: EndpointEntry
    # an answer is reused for the same server, model and version only
    identity: Mapping[str, str | int] = field(default_factory=dict)

    @cached_property
    def prompt(self) -> EndpointPrompt:
        """What turns texts into questions."""
        return prompt_of(self.entry)

    def request(self, text: str, index: int = 0) -> Request:
        """Return a request of a text; the middle of one that is too long is cut."""
        question = self._fitted(text)
        return request(self.entry, question, index)

    def key(self, item: Request) -> str:
        """Return the name under which an answer is kept."""
        asked = {"server": dict(self.identity), "url": item.url, "payload": item.payload}
        return sha256_bytes(canonical_json(asked))

    def _fitted(self, text: str) -> Question:
        question = self.prompt.render(text)
        excess = characters(question) - _CHARACTERS * self.entry.budget_tokens
        if excess <= 0:
            return question
        kept = max(0, len(text) - excess - len(_NOTE))
        return self.prompt.render(
            f"{text[: kept - kept // 2]}{_NOTE}{text[len(text) - kept // 2 :]}"
        )


class NotKeptError(CertifyError):
    """A scoring that may not ask the server needs an answer that was not kept."""


@dataclass(slots=True)
class Answers:
    """What came of a scoring."""

    # by number of the text and of its request
    replies: dict[tuple[int, int], Reply] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)  # why a text has none: refused or failed
    # number that the server was asked for now
    fresh: int = 0
    complaint: str = ""

    @property
    def cache_hits(self) -> int:
        """Answers that were there already."""
        return len(self.replies) - self.fresh


def complete(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, also where an event loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def ask_all(
    client: Client,
    journal: AnswerJournal,
    connection: Connection,
    texts: Sequence[str],
    *,
    replay: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Ask every request of every text; equal texts are asked once.

    Parameters
    ----------
    replay : bool
        Take answers from the journal alone: a text whose answer it does not hold stays unscored.
    """
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows.setdefault(text, []).append(row)
    jobs = iter([(text, index) for text in rows for index in range(connection.entry.votes)])
    scoring = _Scoring(client, journal, connection, rows, len(texts), replay, progress)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(connection.entry.concurrency, len(rows) * connection.entry.votes)):
                group.create_task(scoring.work(jobs))
    except* CertifyError as errors:
        raise _first(errors) from None
    answers = scoring.answers
    if texts and len(answers.lost) == len(texts):
        raise InputError(
            f"none of {len(texts)} texts was answered: {answers.complaint.rstrip('.')}; check the "
            "model's name and the settings."
        )
    return answers


@dataclass(slots=True)
class _Scoring:
    client: Client
    journal: AnswerJournal
    connection: Connection
    rows: Mapping[str, Sequence[int]]
    texts: int
    replay: bool
    progress: Callable[[int, int], None] | None
    answers: Answers = field(default_factory=Answers)
    done: int = 0
    # questions whose answer showed no verdict, until one does
    silent: int | None = 0

    async def work(self, jobs: Iterator[tuple[str, int]]) -> None:
        for text, index in jobs:
            rows = self.rows[text]
            if rows[0] not in self.answers.lost:
                await self._answer(text, index)
            self.done += len(rows)
            if self.progress is not None:
                self.progress(self.done, self.texts * self.connection.entry.votes)

    async def _answer(self, text: str, index: int) -> None:
        rows, answers = self.rows[text], self.answers
        item = self.connection.request(text, index)
        key = self.connection.key(item)
        try:
            if (known := self.journal.get(key)) is not None:
                reply = Reply.from_dict(known)
            elif self.replay:
                raise NotKeptError("the answer was not kept.")
            else:
                reply = await ask_once(self.client, self.journal, key, item)
                answers.fresh += 1
        except RefusedError as error:
            return self._lose(rows, "refused", error)
        except (UnavailableError, MisshapenError, NotKeptError) as error:
            return self._lose(rows, "failed", error)
        answers.replies |= {(row, index): reply for row in rows}
        self._stop_where_nothing_is_read(reply)
        return None

    def _stop_where_nothing_is_read(self, reply: Reply) -> None:
        entry = self.connection.entry
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
        entry, answers = self.connection.entry, self.answers
        if isinstance(error, RefusedError) and error.status in (404, 405):
            raise InputError(
                f"{entry.plain_url} has no model {entry.model!r} at this route ({error}); check "
                "URL and model."
            )
        answers.lost |= dict.fromkeys(rows, reason)
        answers.complaint = answers.complaint or str(error)
        failed = sum(why == "failed" for why in answers.lost.values())
        if failed > entry.max_failed and not self.replay:
            raise UnavailableError(
                f"text {rows[0] + 1} of {self.texts} was not answered "
                f"({str(error).rstrip('.')}); {len(self.journal)} answers are kept, "
                "score again to resume, or allow failed texts by max_failed."
            )


async def ask_once(client: Client, journal: AnswerJournal, key: str, item: Request) -> Reply:
    """Ask the server and keep its answer."""
    reply = item.read(await client.ask(item.url, item.payload, tokens=item.tokens))
    journal.put(key, reply.to_dict())
    return reply


def _first(errors: BaseExceptionGroup[CertifyError]) -> CertifyError:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, CertifyError)
    return found


async def connect(entry: EndpointEntry) -> Connection:
    """Ask a server what it is."""
    async with Client(entry) as client:
        return Connection(entry, await _identity(client))


async def _identity(client: Client) -> dict[str, str | int]:
    server = client.server
    listed = (await _told(client, f"{server.plain_url}/models")).get("data")
    version = (await _told(client, f"{server.root_url}/version")).get("version")
    found: dict[str, str | int] = {"url": server.plain_url, "revision": server.revision}
    found["version"] = version if isinstance(version, str) else ""
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and item.get("id") == server.model:
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
