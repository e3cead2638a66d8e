"""Ask for every text: a bounded number of requests at a time, each question once, every answer kept before the next is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.endpoint.client import Client, RefusedError, UnavailableError
from certify_assets.judges.endpoint.fitting import NotKeptError, fitted
from certify_assets.judges.endpoint.journal import Journal
from certify_assets.judges.endpoint.prompt import EndpointPrompt
from certify_assets.judges.endpoint.replies import MisshapenError, Reply
from certify_assets.judges.endpoint.requests import Request, per_text, request
from certify_assets.judges.endpoint.settings import Asking, Server

__all__ = ["Answers", "Asked", "ask_all", "ask_once", "complete"]

_T = TypeVar("_T")
# a scoring in which so many answers show no verdict would cost all the same and give no score
_SILENT = 50


@dataclass(frozen=True, slots=True)
class Asked:
    """What every request of a scoring shares.

    Parameters
    ----------
    server, asking, prompt
        Settings.
    read : str
        How a verdict is read.
    ids : tuple of int, optional
        Tokens of the verdicts.
    identity : mapping
        What the server says of itself: an answer is reused for the same server, model and version only.
    max_failed : int
        Texts that may stay unanswered.
    budget_tokens : int, optional
        Longest prompt; what does not fit is cut from the middle of the run.
    counts : bool
        Whether the server counts tokens.
    replay : bool
        Take answers from the journal alone: a text whose answer it does not hold stays unscored.
    """

    server: Server
    asking: Asking
    prompt: EndpointPrompt
    read: str
    ids: tuple[int, int] | None
    identity: Mapping[str, Any]
    max_failed: int = 0
    budget_tokens: int | None = None
    counts: bool = False
    replay: bool = False


@dataclass(slots=True)
class Answers:
    """What came of it.

    Parameters
    ----------
    replies : dict
        By number of the text and of its request.
    lost : dict
        Why a text has none: refused or failed.
    cut : set
        Texts whose middle was cut to the budget.
    fresh : set
        Those asked for now.
    """

    replies: dict[tuple[int, int], Reply] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    fresh: set[tuple[int, int]] = field(default_factory=set)
    cache_hits: int = 0
    complaint: str = ""


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
    client: Client, journal: Journal, asked: Asked, item: Request
) -> tuple[Reply, bool]:
    """Answer one request from the journal or the server; return whether the server was asked.

    Raises
    ------
    RefusedError, UnavailableError, InputError
        As `Client.ask`.
    MisshapenError
        If the answer is none of the interface.
    """
    key = _key(asked, item)
    if (known := journal.get(key)) is not None:
        return Reply.from_dict(known), False
    if asked.replay:
        raise NotKeptError("the journal does not hold the answer.")
    reply = item.read(await client.ask(item.url, item.payload, tokens=item.tokens))
    journal.put(key, reply.to_dict())
    return reply, True


async def ask_all(
    client: Client,
    journal: Journal,
    asked: Asked,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Ask every request of every text.

    Parameters
    ----------
    client : Client
    journal : Journal
    asked : Asked
    texts : sequence of str
    progress : callable, optional
        Called with the requests answered and their total.

    Raises
    ------
    InputError
        If no request can succeed.
    UnavailableError
        If more than `max_failed` texts stay unanswered; what was answered is in the journal.
    """
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
            f"none of {len(texts)} texts was answered: {answers.complaint.rstrip('.')}; check the model's name and the settings."
        )
    return answers


@dataclass(slots=True)
class _Workers:
    client: Client
    journal: Journal
    asked: Asked
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
            question, cut = await fitted(self.client, self.journal, asked, self.texts[row])
        except (RefusedError, UnavailableError, NotKeptError) as error:
            return self._lose(row, "failed", error)
        if cut:
            self.answers.cut.add(row)
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
                f"none of the first {_SILENT} answers of {self.asked.server.plain_url} has {words} among its likeliest tokens; "
                "ask in another form, or choose asking cot."
            )

    def _lose(self, row: int, reason: str, error: CertifyError) -> None:
        shown = self.asked.server.plain_url
        if isinstance(error, RefusedError) and error.status in (404, 405):
            raise InputError(
                f"{shown} has no model {self.asked.server.model!r} at this route ({error}); check URL and model."
            )
        self.answers.lost[row] = reason
        self.answers.complaint = self.answers.complaint or str(error)
        failed = sum(why == "failed" for why in self.answers.lost.values())
        if failed > self.asked.max_failed and not self.asked.replay:
            raise UnavailableError(
                f"text {row + 1} of {len(self.texts)} was not answered ({str(error).rstrip('.')}); {len(self.journal)} answers are kept, "
                "score again to go on, or allow failed texts by max_failed."
            )


def _key(asked: Asked, item: Request) -> str:
    return sha256_bytes(
        canonical_json({"server": dict(asked.identity), "url": item.url, "payload": item.payload})
    )


def _first(errors: BaseExceptionGroup[CertifyError]) -> CertifyError:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, CertifyError)
    return found
