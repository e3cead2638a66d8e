"""Ask for every text: bounded requests in flight, each question once, every answer kept."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
    is_chat,
    per_text,
    request,
)
from certify_assets.judges.endpoint.settings import READS, Asking, Server

_FLUSH_SECONDS = 1.0


class AnswerJournal:
    """The answers of earlier scorings, and an open file for new ones.

    The file belongs to one process at a time. It is written answer by answer to a handle that stays
    open, each line with its hash, so that a scoring that is killed at any moment resumes from it.

    Parameters
    ----------
    path : Path or None
        File of new answers; None keeps none.
    kept : sequence of bytes
        Such files of earlier scorings.
    """

    def __init__(self, path: Path | None, kept: Sequence[bytes] = ()) -> None:
        self._known: dict[str, Any] = {}
        self._flushed = time.monotonic()
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
            self._resume(path)
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
        """Keep an answer: it outlives the process at once, and a power cut after a second."""
        line = {"key": key, "answer": answer}
        digest = sha256_bytes(canonical_json(line))
        if self._handle >= 0:
            data = canonical_json({**line, "sha256": digest})
            while data:
                data = data[os.write(self._handle, data) :]
            if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
                os.fsync(self._handle)
                self._flushed = time.monotonic()
        self._known[key] = answer

    def _resume(self, path: Path) -> None:
        data = path.read_bytes()
        # a kill in the middle of a write leaves a part of a line, which was never an answer
        os.ftruncate(self._handle, data.rfind(b"\n") + 1)
        self._load(str(path), data[: data.rfind(b"\n") + 1])

    def _load(self, name: str, data: bytes) -> None:
        for number, text in enumerate(data.splitlines(), 1):
            try:
                line = dict(parse_json(text.decode("utf-8")))
                digest, key, answer = line.pop("sha256"), line["key"], line["answer"]
                known = digest == sha256_bytes(canonical_json(line))
            except (ValueError, TypeError, KeyError):
                known = False
            if not known:
                raise IntegrityError(
                    f"{name}, line {number} is no answer that was kept, or was altered. Delete the "
                    "file and ask the server again."
                )
            self._known[key] = answer


_T = TypeVar("_T")
# a scoring in which so many answers show no verdict would cost all the same and give no score
_SILENT = 50


@dataclass(frozen=True, slots=True)
class EndpointSetup:
    """What every request of a scoring shares."""

    server: Server
    asking: Asking
    prompt: EndpointPrompt
    read: str
    ids: tuple[int, int] | None
    # what the server says of itself: an answer is reused for the same server, model and version
    # only
    identity: Mapping[str, str | int]
    max_failed: int = 0
    budget_tokens: int | None = None
    counts: bool = False
    # take answers from the journal alone: a text whose answer it does not hold stays unscored
    replay: bool = False


@dataclass(slots=True)
class Answers:
    """What came of it."""

    # by number of the text and of its request
    replies: dict[tuple[int, int], Reply] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)  # why a text has none: refused or failed
    fresh: set[tuple[int, int]] = field(default_factory=set)
    cache_hits: int = 0
    complaint: str = ""
    requests: int = 0
    retries: int = 0


def complete(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, also where an event loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def ask_once(
    client: Client, journal: AnswerJournal, asked: EndpointSetup, item: Request
) -> tuple[Reply, bool]:
    """Answer one request from the journal or the server; return whether the server was asked."""
    key = _key(asked, item)
    if (known := journal.get(key)) is not None:
        return Reply.from_dict(known), False
    if asked.replay:
        raise NotKeptError("the answer was not kept.")
    reply = item.read(await client.ask(item.url, item.payload, tokens=item.tokens))
    journal.put(key, asdict(reply))
    return reply, True


async def ask_all(
    client: Client,
    journal: AnswerJournal,
    asked: EndpointSetup,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Ask every request of every text."""
    answers = Answers()
    count = per_text(asked.asking, asked.read)
    jobs = iter([(row, index) for row in range(len(texts)) for index in range(count)])
    workers = _Workers(client, journal, asked, texts, answers, progress, len(texts) * count)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(asked.server.concurrency, len(texts) * count)):
                group.create_task(workers.work(jobs))
    except* CertifyError as errors:
        raise _first(errors) from None
    if texts and len(answers.lost) == len(texts):
        raise InputError(
            f"none of {len(texts)} texts was answered: {answers.complaint.rstrip('.')}; check the "
            "model's name and the settings."
        )
    return answers


@dataclass(slots=True)
class _Workers:
    client: Client
    journal: AnswerJournal
    asked: EndpointSetup
    texts: Sequence[str]
    answers: Answers
    progress: Callable[[int, int], None] | None
    total: int
    running: dict[str, asyncio.Event] = field(default_factory=dict)
    done: int = 0

    async def work(self, jobs: Iterator[tuple[int, int]]) -> None:
        for row, index in jobs:
            if row not in self.answers.lost:
                await self._answer(row, index)
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, self.total)

    async def _answer(self, row: int, index: int) -> None:
        asked = self.asked
        try:
            question = await fitted(self.client, self.journal, asked, self.texts[row])
        except (RefusedError, UnavailableError, NotKeptError) as error:
            return self._lose(row, "failed", error)
        item = request(
            asked.server, asked.asking, question, read=asked.read, ids=asked.ids, index=index
        )
        key = _key(asked, item)
        # equal texts ask one question: the second waits for the answer to the first
        while key in self.running:
            await self.running[key].wait()
        self.running[key] = asyncio.Event()
        try:
            reply, fresh = await ask_once(self.client, self.journal, asked, item)
        except RefusedError as error:
            self._lose(row, "refused", error)
        except (UnavailableError, MisshapenError, NotKeptError) as error:
            self._lose(row, "failed", error)
        else:
            self.answers.replies[row, index] = reply
            self._stop_where_nothing_is_read()
            if fresh:
                self.answers.fresh.add((row, index))
            else:
                self.answers.cache_hits += 1
        finally:
            self.running.pop(key).set()

    def _stop_where_nothing_is_read(self) -> None:
        replies = self.answers.replies
        if (
            self.asked.read == "top"
            and len(replies) == _SILENT
            and all(reply.reason == "missing" for reply in replies.values())
        ):
            words = " and ".join(map(repr, self.asked.asking.words))
            raise InputError(
                f"none of the first {_SILENT} answers of {self.asked.server.plain_url} has {words} "
                "among its likeliest tokens; ask in another form, or choose asking cot."
            )

    def _lose(self, row: int, reason: str, error: CertifyError) -> None:
        shown = self.asked.server.plain_url
        if isinstance(error, RefusedError) and error.status in (404, 405):
            raise InputError(
                f"{shown} has no model {self.asked.server.model!r} at this route ({error}); check "
                "URL and model."
            )
        self.answers.lost[row] = reason
        self.answers.complaint = self.answers.complaint or str(error)
        failed = sum(why == "failed" for why in self.answers.lost.values())
        if failed > self.asked.max_failed and not self.asked.replay:
            raise UnavailableError(
                f"text {row + 1} of {len(self.texts)} was not answered "
                f"({str(error).rstrip('.')}); {len(self.journal)} answers are kept, "
                "score again to resume, or allow failed texts by max_failed."
            )


def _key(asked: EndpointSetup, item: Request) -> str:
    return sha256_bytes(
        canonical_json({"server": dict(asked.identity), "url": item.url, "payload": item.payload})
    )


def _first(errors: BaseExceptionGroup[CertifyError]) -> CertifyError:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, CertifyError)
    return found


_NOTE = "\n[middle of the run cut]\n  "
# marks of a chat template, beyond the bytes of the messages
_TEMPLATE = 64
# English text has about four characters a token, pages and code about three
_CHARACTERS = 3
_ROUNDS = 8


class NotKeptError(CertifyError):
    """A scoring that may not ask the server needs an answer that the journal does not hold."""


async def can_count(client: Client) -> bool:
    """Whether the server counts tokens for us, as vLLM does."""
    try:
        answer = await client.ask(
            f"{client.server.root_url}/tokenize", {"model": client.server.model, "prompt": "one"}
        )
    except CertifyError:
        return False
    return type(answer.get("count")) is int


async def fitted(
    client: Client, journal: AnswerJournal, asked: EndpointSetup, text: str
) -> Question:
    """Render a text, cut in its middle until its prompt fits."""
    question = asked.prompt.render(text)
    budget = asked.budget_tokens
    # a token is at least one byte
    if budget is None or _characters(question, bytes_=True) + _TEMPLATE <= budget:
        return question
    if not asked.counts:
        excess = _characters(question) - _CHARACTERS * budget
        return (
            question
            if excess <= 0
            else asked.prompt.render(_cut(text, len(text) - excess - len(_NOTE)))
        )
    kept = len(text)
    for _ in range(_ROUNDS):
        count = await _count(client, journal, asked, question)
        if count <= budget:
            break
        # as many characters as the excess has on average, and a tenth more: the next count mostly
        # fits
        kept = min(
            kept - 1,
            kept - int(1.1 * (count - budget) * _characters(question) / count) - len(_NOTE),
        )
        question = asked.prompt.render(_cut(text, kept))
    return question


async def _count(
    client: Client, journal: AnswerJournal, asked: EndpointSetup, question: Question
) -> int:
    model = asked.server.model
    payload = (
        {"model": model, "prompt": question}
        if isinstance(question, str)
        else {"model": model, "messages": list(question), "add_generation_prompt": True}
    )
    key = sha256_bytes(canonical_json({"server": dict(asked.identity), "count": payload}))
    known = journal.get(key)
    if known is None:
        if asked.replay:
            raise NotKeptError("the length of a prompt was not kept.")
        answer = await client.ask(f"{asked.server.root_url}/tokenize", payload)
        known = {"count": answer.get("count")}
        journal.put(key, known)
    count = known["count"]
    return count if type(count) is int else 0


def _characters(question: Question, *, bytes_: bool = False) -> int:
    texts = (
        [question]
        if isinstance(question, str)
        else [item["content"] for item in question if isinstance(item, Mapping)]
    )
    return sum(len(text.encode("utf-8", "replace")) if bytes_ else len(text) for text in texts)


def _cut(text: str, kept: int) -> str:
    kept = max(0, kept)
    return f"{text[: kept - kept // 2]}{_NOTE}{text[len(text) - kept // 2 :]}"


# stands for a run in the request that settles how verdicts are read
_PROBE = "TASK\n  none\n"


async def connect(asked: EndpointSetup, path: Path | None, kept: Sequence[bytes]) -> EndpointSetup:
    """Complete a setup: the server's identity, the verdicts' tokens, the way to read them."""
    async with Client(asked.server) as client:
        counts = asked.budget_tokens is not None and await can_count(client)
        asked = replace(asked, identity=await _identity(client), counts=counts)
        if asked.asking.mode != "logprob":
            return replace(asked, read="top")
        ids = None if asked.read == "top" else await _verdict_ids(client, asked.asking)
        asked = replace(asked, ids=ids)
        if asked.read != "auto":
            return asked
        with AnswerJournal(path, kept) as journal:
            return await _settled(client, journal, asked)


async def _identity(client: Client) -> dict[str, str | int]:
    server = client.server
    listed = await _answer(client, f"{server.plain_url}/models")
    version = (await _answer(client, f"{server.root_url}/version")).get("version")
    said = {"version": version if isinstance(version, str) else "", **_entry(listed, server)}
    return {"url": server.plain_url, "revision": server.revision, **said}


async def _answer(client: Client, url: str) -> Mapping[str, Any]:
    try:
        return await client.ask(url, None)
    except UnavailableError as error:
        if not error.status:
            raise UnavailableError(f"{error}; start the server, or correct the url.", 0) from None
    except CertifyError:
        # a server, or a key, may be good for verdicts and not for this; whether it is, the first
        # verdict says
        pass
    return {}


def _entry(listed: Mapping[str, Any], server: Server) -> dict[str, str | int]:
    data = listed.get("data")
    for item in data if isinstance(data, list) else []:
        if isinstance(item, dict) and item.get("id") == server.model:
            return {
                name: item[name]
                for name in ("parent", "max_model_len", "owned_by")
                if isinstance(item.get(name), (str, int))
            }
    return {}


async def _verdict_ids(client: Client, asking: Asking) -> tuple[int, int] | None:
    before = await _tokens(client, asking.marker) if asking.marker else []
    found: list[int] = []
    for word in asking.words:
        whole = await _tokens(client, asking.marker + word)
        if (
            before is None
            or whole is None
            or whole[: len(before)] != before
            or len(whole) != len(before) + 1
        ):
            return None
        found.append(whole[-1])
    return (found[0], found[1]) if found[0] != found[1] else None


async def _tokens(client: Client, text: str) -> list[int] | None:
    payload = {"model": client.server.model, "prompt": text, "add_special_tokens": False}
    try:
        answer = await client.ask(f"{client.server.root_url}/tokenize", payload)
    except CertifyError:
        return None
    tokens = answer.get("tokens")
    return (
        tokens if isinstance(tokens, list) and all(type(token) is int for token in tokens) else None
    )


async def _settled(client: Client, journal: AnswerJournal, asked: EndpointSetup) -> EndpointSetup:
    question = asked.prompt.render(_PROBE)
    said = "it knows none of the ways"
    for read in READS:
        if read != "top" and (asked.ids is None or (read == "scoring" and is_chat(question))):
            continue
        item = request(asked.server, asked.asking, question, read=read, ids=asked.ids, index=0)
        try:
            reply, _ = await ask_once(client, journal, asked, item)
        except (RefusedError, MisshapenError) as error:
            said = str(error).rstrip(".")
            continue
        # a server that does not know the field leaves it out of account and returns other tokens
        if read == "top" or reply.reason != "missing":
            return replace(asked, read=read)
    raise InputError(
        f"{asked.server.plain_url} gives no log-probabilities of verdicts ({said}); check URL and "
        "model, or choose mode cot or vote."
    )
