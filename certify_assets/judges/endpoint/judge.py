"""A judge that asks a server, the cost of its scoring, and its stored answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import computed_field

from certify_assets.documents import Document
from certify_assets.errors import IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import Bill, JudgeProvenance, Scores
from certify_assets.judges.endpoint.client import Client
from certify_assets.judges.endpoint.questions import Reply, conclude, prompt_sha256
from certify_assets.judges.endpoint.scoring import (
    AnswerJournal,
    Identity,
    Scoring,
    complete,
    identify,
)
from certify_assets.judges.endpoint.settings import EndpointEntry
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.stored import StoredJudge

#: characters that are kept of an answer without a verdict
_SHOWN = 80
#: a file for new answers, and the contents of such files of earlier scorings
Kept = tuple[Path | None, Sequence[bytes]]


class EndpointReport(Document):
    """Counts of one scoring."""

    TITLE = "bill of a scoring"

    decisions: int
    scored: int
    # texts without, by reason: unparsed, missing, not_finite, refused or failed
    unscored: dict[str, int]
    # answers read, and those in which no verdict was found; with k votes a text has k
    answers: int
    unparsed_answers: int
    # sent now (those sent again included), sent again, and answers that the journal had
    requests: int
    retries: int
    cache_hits: int
    prompt_tokens: int
    completion_tokens: int
    uncounted_answers: int  # answers without usage: tokens and cost then are lower bounds
    cost: float
    currency: str
    seconds: float
    models: tuple[str, ...]
    # of the first answer without a verdict, its beginning
    first_unparsed: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def parse_rate(self) -> float | None:
        """Share of the answers in which a verdict was found; None without answers."""
        return 1 - self.unparsed_answers / self.answers if self.answers else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost_per_decision(self) -> float | None:
        """Cost of a text, scored or not; None without texts."""
        return self.cost / self.decisions if self.decisions else None

    @classmethod
    def merged(cls, reports: Sequence[EndpointReport]) -> EndpointReport:
        """Add up the reports of several scorings, in order."""
        unscored: Counter[str] = Counter()
        for report in reports:
            unscored.update(report.unscored)
        fields = cls.model_fields.items()
        figures = [name for name, field in fields if field.annotation in (int, float)]
        return cls(
            unscored=dict(sorted(unscored.items())),
            currency=reports[-1].currency,
            first_unparsed=next((one.first_unparsed for one in reports if one.first_unparsed), ""),
            models=_one_model(name for report in reports for name in report.models),
            **{name: sum(getattr(report, name) for report in reports) for name in figures},
        )


def _one_model(found: Iterable[str]) -> tuple[str, ...]:
    models = tuple(sorted(set(found) - {""}))
    if len(models) > 1:
        raise IntegrityError(
            f"the server answered as {' and as '.join(models)} in one scoring; pin one model "
            "and score again."
        )
    return models


@dataclass(frozen=True, eq=False)
class EndpointRun:
    """Scores with their bill."""

    scores: Scores
    report: EndpointReport
    reasons: tuple[str, ...]  # why a text has no score; empty where it has one


@dataclass(frozen=True)
class EndpointJudge:
    """A judge that asks a server, with a bill of each scoring; `connected` makes one."""

    entry: EndpointEntry
    identity: Identity
    renderer_sha256: str = ""
    # gives the place of new answers, and those of earlier scorings
    answers: Callable[[], AbstractContextManager[Kept]] = lambda: nullcontext((None, ()))
    # take answers from those alone
    replay: bool = False
    progress: Callable[[int, int], None] = lambda *_: None
    runs: list[EndpointRun] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the judge."""
        return self.entry.name

    def provenance(self) -> JudgeProvenance:
        """Return the facts that the scores depend on, without the key."""
        entry, identity = self.entry, self.identity
        settings = {
            "model": entry.model,
            "server": dict(identity),
            "prompt_sha256": prompt_sha256(entry),
            "asking": entry.question(),
            "budget_tokens": entry.budget_tokens,
        }
        if entry.mode == "logprob":
            settings["top"] = entry.top
        # nothing is trained: what was chosen takes the adapter's place
        adapter = sha256_bytes(canonical_json(settings))
        version = identity.get("version") or "of unknown version"
        engine = f"OpenAI-compatible server {version}, mode {entry.mode}"
        return JudgeProvenance(
            self.name, adapter, self.renderer_sha256, engine, "as the server has it", settings
        )

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories; see `run`."""
        return self.run(texts).scores

    def run(self, texts: Sequence[str]) -> EndpointRun:
        """Judge rendered trajectories; return scores and bill. No answer is requested twice."""
        with self.answers() as (path, kept), AnswerJournal(path, kept) as journal:
            found = complete(self._run(journal, texts))
        self.runs.append(found)
        return found

    def bill(self) -> Bill:
        """Return counts, tokens, seconds and cost of all that was scored."""
        return EndpointReport.merged([run.report for run in self.runs]).model_dump(mode="json")

    async def _run(self, journal: AnswerJournal, texts: Sequence[str]) -> EndpointRun:
        begun = time.monotonic()
        # what was kept needs no key
        async with Client(self.entry, key=None if self.replay else self.entry.key()) as client:
            scoring = Scoring(client, journal, self.identity, texts, self.replay, self.progress)
            await scoring.run()
        return _concluded(scoring, time.monotonic() - begun)


def _concluded(scoring: Scoring, seconds: float) -> EndpointRun:
    """Compute scores from the answers, and add up their cost."""
    client, entry, texts = scoring.client, scoring.client.entry, len(scoring.texts)
    by_row: list[list[Reply]] = [[] for _ in range(texts)]
    for (row, _), reply in sorted(scoring.replies.items(), key=lambda item: item[0]):
        by_row[row].append(reply)
    concluded = [
        (np.nan, np.nan, scoring.lost[row])
        if row in scoring.lost
        else conclude(entry.mode, said, entry.votes)
        for row, said in enumerate(by_row)
    ]
    reasons = tuple(reason for *_, reason in concluded)
    logs = np.array([pair for *pair, _ in concluded], np.float64).reshape(texts, 2)
    replies = list(scoring.replies.values())
    prompt_tokens = sum(reply.prompt_tokens or 0 for reply in replies)
    completion_tokens = sum(reply.completion_tokens or 0 for reply in replies)
    unscored = Counter(filter(None, reasons))
    unparsed = [reply for reply in replies if not reply.is_read(entry.mode)]
    report = EndpointReport(
        decisions=texts,
        scored=texts - unscored.total(),
        unscored=dict(sorted(unscored.items())),
        answers=len(replies),
        unparsed_answers=len(unparsed),
        requests=client.requests,
        retries=client.retries,
        cache_hits=scoring.cache_hits,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        uncounted_answers=sum(
            None in (reply.prompt_tokens, reply.completion_tokens) for reply in replies
        ),
        cost=entry.prices.cost(prompt_tokens, completion_tokens),
        currency=entry.prices.currency,
        seconds=seconds,
        models=_one_model(reply.model for reply in replies),
        first_unparsed=unparsed[0].text[:_SHOWN] if unparsed else "",
    )
    return EndpointRun(Scores(logs[:, 0].copy(), logs[:, 1].copy()), report, reasons)


@contextmanager
def answers_of(judge: StoredJudge, *, replay: bool = False) -> Iterator[Kept]:
    """Give a file for new answers, which cost money, and the answers of earlier scorings.

    Each scoring stores its answers under their hash, so that none overwrites another. With `replay`
    no new answers are kept.
    """
    folder = judge.key("answers")
    stored = [f"{folder}/{name}" for name in judge.store.names(folder)]
    kept = tuple(map(judge.store.read_bytes, stored))
    if replay:
        yield None, kept
        return
    path = judge.store.scratch(judge.key()) / "answers.jsonl"
    yield path, kept
    if data := path.read_bytes() if path.exists() else b"":
        judge.store.write_bytes(f"{folder}/{sha256_bytes(data)}.jsonl", data)
        judge.store.once_committed(partial(path.unlink, missing_ok=True))


def connected(
    entry: EndpointEntry,
    *,
    renderer_sha256: str = "",
    answers: Callable[[], AbstractContextManager[Kept]] = lambda: nullcontext((None, ())),
) -> EndpointJudge:
    """Identify a server; return a judge for it, without storing it."""
    return EndpointJudge(entry, complete(_identity(entry)), renderer_sha256, answers)


async def _identity(entry: EndpointEntry) -> Identity:
    async with Client(entry, key=entry.key()) as client:
        return await identify(client)


def register(judge: StoredJudge, entry: EndpointEntry) -> EndpointJudge:
    """Identify the server of a judge on a corpus."""
    return connected(
        entry,
        renderer_sha256=judge.spec.reading.renderer.sha256,
        answers=partial(answers_of, judge),
    )


def registered_judge(
    judge: StoredJudge, entry: EndpointEntry, record: JudgeRecord, *, replay: bool
) -> EndpointJudge:
    """Return the registered judge; refuse a server that has changed."""
    was, again = record.details["server"], f"materialize judges/{judge}/model again."
    answers = partial(answers_of, judge, replay=replay)
    found = EndpointJudge(entry, was, record.renderer_sha256, answers, replay)
    if found.provenance().adapter_sha256 != record.adapter_sha256:
        raise StaleCertificateError(
            f"the registration of {judge} on {judge.corpus} was altered; {again}"
        )
    if replay:
        return found
    now = complete(_identity(entry))
    differing = next((name for name in sorted({*now, *was}) if now.get(name) != was.get(name)), "")
    if differing:
        raise StaleCertificateError(
            f"the server of {judge} is not the registered one: its {differing} is "
            f"{now.get(differing)!r} and was {was.get(differing)!r}; {again}"
        )
    return found
