"""A judge that asks a server, what its scoring cost, and its answers in the data root."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from certify_assets.errors import IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import Bill, JudgeProvenance, Scores
from certify_assets.judges.endpoint.client import Client
from certify_assets.judges.endpoint.config import EndpointConfig
from certify_assets.judges.endpoint.questions import (
    EndpointPrompt,
    Reply,
    conclude,
    read_vote,
    stated_probability,
)
from certify_assets.judges.endpoint.scoring import (
    AnswerJournal,
    Answers,
    EndpointSetup,
    ask_all,
    complete,
    connect,
)
from certify_assets.judges.endpoint.settings import Asking, Prices, Server
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import JudgeRecord

#: characters that are kept of an answer without a verdict
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """Counts of one scoring."""

    decisions: int
    scored: int
    # texts without, by reason: unparsed, missing, not_finite, refused or failed
    unscored: Mapping[str, int]
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
    # of all answers, and of those asked for now
    cost: float
    cost_now: float
    currency: str
    seconds: float
    models: tuple[str, ...]
    fingerprints: tuple[str, ...]
    # of the first answer without a verdict, its beginning
    first_unparsed: str = ""

    @property
    def parse_rate(self) -> float:
        """Share of the answers in which a verdict was found; NaN without answers."""
        return 1 - self.unparsed_answers / self.answers if self.answers else float("nan")

    @property
    def cost_per_decision(self) -> float:
        """Cost of a text, scored or not; NaN without texts."""
        return self.cost / self.decisions if self.decisions else float("nan")

    def to_dict(self) -> Bill:
        """Return the report as a JSON object; what cannot be divided is null."""
        shares = {"parse_rate": self.parse_rate, "cost_per_decision": self.cost_per_decision}
        finite = {name: value if np.isfinite(value) else None for name, value in shares.items()}
        return {**asdict(self), **finite}

    @classmethod
    def merged(cls, reports: Sequence[EndpointReport]) -> EndpointReport:
        """Add up the scorings of several tables, in their order."""
        unscored: Counter[str] = Counter()
        for report in reports:
            unscored.update(report.unscored)
        figures = [item.name for item in fields(cls) if item.type in ("int", "float")]
        return cls(
            unscored=dict(sorted(unscored.items())),
            currency=reports[-1].currency,
            first_unparsed=next((one.first_unparsed for one in reports if one.first_unparsed), ""),
            models=_one_model(name for report in reports for name in report.models),
            fingerprints=_names(name for report in reports for name in report.fingerprints),
            **{name: sum(getattr(report, name) for report in reports) for name in figures},
        )


def _names(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(found) - {""}))


def _one_model(found: Iterable[str]) -> tuple[str, ...]:
    models = _names(found)
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
    """A judge that asks a server; make one by `connect`."""

    asked: EndpointSetup
    name: str = "endpoint"
    renderer_sha256: str = ""
    prices: Prices = field(default_factory=Prices)
    journal: Path | None = None  # file of new answers; an interrupted scoring resumes from it
    kept: tuple[bytes, ...] = ()  # such files of earlier scorings

    @classmethod
    def connect(
        cls,
        server: Server,
        asking: Asking,
        prompt: EndpointPrompt,
        *,
        max_failed: int = 0,
        budget_tokens: int | None = None,
        **rest: Any,
    ) -> EndpointJudge:
        """Ask the server what it is and settle, by one real request, how verdicts are read."""
        judge = cls(
            EndpointSetup(
                server,
                asking,
                prompt,
                asking.read,
                None,
                {},
                max_failed,
                budget_tokens,
            ),
            **rest,
        )
        return replace(judge, asked=complete(connect(judge.asked, judge.journal, judge.kept)))

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on: no address beyond the plain URL, no key."""
        asked = self.asked
        ids = None if asked.ids is None or asked.read == "top" else list(asked.ids)
        reading = {
            "read": asked.read,
            "verdict_ids": ids,
            "top": asked.asking.top if asked.read == "top" else None,
        }
        settings = {
            "model": asked.server.model,
            "server": dict(asked.identity),
            "prompt_sha256": asked.prompt.sha256,
            "asking": asked.asking.to_dict(),
            **(reading if asked.asking.mode == "logprob" else {}),
        }
        if asked.budget_tokens is not None:
            settings |= {
                "budget_tokens": asked.budget_tokens,
                "counted_by": "server" if asked.counts else "characters",
            }
        # nothing is trained: what was chosen takes the adapter's place
        adapter = sha256_bytes(canonical_json(settings))
        version = asked.identity.get("version") or "of unknown version"
        engine = f"OpenAI-compatible server {version}, mode {asked.asking.mode}"
        return JudgeProvenance(
            self.name, adapter, self.renderer_sha256, engine, "as the server has it", settings
        )

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories; see `run`."""
        return self.run(texts).scores

    def run(
        self, texts: Sequence[str], *, progress: Callable[[int, int], None] | None = None
    ) -> EndpointRun:
        """Judge rendered trajectories; return scores and bill."""
        begun = time.monotonic()
        return complete(self._run(list(texts), progress, begun))

    async def _run(
        self, texts: list[str], progress: Callable[[int, int], None] | None, begun: float
    ) -> EndpointRun:
        # the journal needs no key
        asked = replace(self.asked.server, key_variable=None)
        server = asked if self.asked.replay else self.asked.server
        with AnswerJournal(self.journal, self.kept) as journal:
            async with Client(server) as client:
                answers = await ask_all(client, journal, self.asked, texts, progress)
            answers.requests, answers.retries = client.requests, client.retries
        return self._concluded(texts, answers, time.monotonic() - begun)

    def _concluded(self, texts: list[str], answers: Answers, seconds: float) -> EndpointRun:
        asking, price = self.asked.asking, self.prices.cost
        logs = np.full((len(texts), 2), np.nan)
        reasons = []
        by_row: list[list[Reply]] = [[] for _ in texts]
        for (row, _), reply in sorted(answers.replies.items(), key=lambda item: item[0]):
            by_row[row].append(reply)
        for row, said in enumerate(by_row):
            reason = answers.lost.get(row)
            if reason is None:
                *logs[row], reason = conclude(asking.mode, said, asking.votes, asking.preset)
            reasons.append(reason)
        replies = list(answers.replies.values())
        prompt_tokens = sum(reply.tokens[0] for reply in replies)
        completion_tokens = sum(reply.tokens[1] for reply in replies)
        unscored = Counter(reason for reason in reasons if reason)
        unparsed = [reply for reply in replies if _unparsed(asking, reply)]
        report = EndpointReport(
            decisions=len(reasons),
            scored=len(reasons) - sum(unscored.values()),
            unscored=dict(sorted(unscored.items())),
            answers=len(replies),
            unparsed_answers=len(unparsed),
            requests=answers.requests,
            retries=answers.retries,
            cache_hits=answers.cache_hits,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            uncounted_answers=sum(
                None in (reply.prompt_tokens, reply.completion_tokens) for reply in replies
            ),
            cost=price(prompt_tokens, completion_tokens),
            cost_now=sum(price(*answers.replies[place].tokens) for place in answers.fresh),
            currency=self.prices.currency,
            seconds=seconds,
            models=_one_model(reply.model for reply in replies),
            fingerprints=_names(reply.fingerprint for reply in replies),
            first_unparsed=unparsed[0].text[:_SHOWN] if unparsed else "",
        )
        scores = Scores(logs[:, 0].copy(), logs[:, 1].copy())
        return EndpointRun(scores, report, tuple(reasons))


def _unparsed(asking: Asking, reply: Reply) -> bool:
    if asking.mode == "logprob":
        return bool(reply.reason)
    if asking.mode == "cot":
        return stated_probability(reply.text, cut=reply.cut) is None
    return read_vote(reply, asking.preset) is None


@dataclass(frozen=True, eq=False)
class BilledJudge:
    """An endpoint judge whose answers are kept in the data root, with a bill of each scoring."""

    judge: EndpointJudge
    judged: JudgedCorpus
    runs: list[EndpointRun] = field(default_factory=list)
    progress: Callable[[int, int], None] | None = None

    @property
    def name(self) -> str:
        """Name of the judge."""
        return self.judge.name

    def provenance(self) -> JudgeProvenance:
        """Say what the scores depend on."""
        return self.judge.provenance()

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories; what was answered before is not asked again."""
        with answers_of(self.judged, replay=self.judge.asked.replay) as (path, kept):
            judge = replace(self.judge, journal=path, kept=kept)
            run = judge.run(texts, progress=self.progress)
        self.runs.append(run)
        return run.scores

    def bill(self) -> Bill:
        """Return counts, tokens, seconds and cost of all that was scored."""
        return EndpointReport.merged([run.report for run in self.runs]).to_dict()


@contextmanager
def answers_of(
    judge: JudgedCorpus, *, replay: bool = False
) -> Iterator[tuple[Path | None, tuple[bytes, ...]]]:
    """Give a file for new answers, which are paid for, and the answers of earlier scorings.

    Each scoring stores what it was answered under the hash of that, so that no other is lost. With
    `replay` nothing new is kept.
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


def register(judge: JudgedCorpus, config: EndpointConfig) -> EndpointJudge:
    """Ask the server what it is; the judge that it can be asked as is not stored yet."""
    asked = _connected(judge, config).asked
    return EndpointJudge(asked, judge.name, judge.spec.reading.renderer.sha256)


def registered_judge(
    judge: JudgedCorpus, config: EndpointConfig, record: JudgeRecord, *, replay: bool
) -> BilledJudge:
    """Return the judge as it was registered."""
    reading = record.details["reading"]
    ids = reading["verdict_ids"]
    asked = EndpointSetup(
        config.server,
        config.asking,
        config.prompt(),
        reading["read"],
        None if ids is None else (ids[0], ids[1]),
        record.details["server"],
        config.max_failed,
        _budget(config),
        reading["counts"],
        replay,
    )
    found = EndpointJudge(asked, judge.name, record.renderer_sha256, config.prices)
    if found.provenance().adapter_sha256 != record.adapter_sha256:
        raise StaleCertificateError(
            f"the registration of {judge} on {judge.corpus} was altered; "
            f"materialize judges/{judge}/model again."
        )
    if not replay:
        _require_same_server(judge, found, config)
    return BilledJudge(found, judge)


def _require_same_server(judge: JudgedCorpus, then: EndpointJudge, config: EndpointConfig) -> None:
    now = _connected(judge, config).asked.identity
    was = then.asked.identity
    differing = next(
        (name for name in sorted({*now, *was}) if now.get(name) != was.get(name)), None
    )
    if differing is not None:
        raise StaleCertificateError(
            f"the server of {judge} is not the registered one: its {differing} is "
            f"{now.get(differing)!r} and was {was.get(differing)!r}; "
            f"materialize judges/{judge}/model again."
        )


def _connected(judge: JudgedCorpus, config: EndpointConfig) -> EndpointJudge:
    with answers_of(judge) as (path, kept):
        return EndpointJudge.connect(
            config.server,
            config.asking,
            config.prompt(),
            budget_tokens=_budget(config),
            name=judge.name,
            journal=path,
            kept=kept,
        )


def _budget(config: EndpointConfig) -> int | None:
    # an encoder cuts for itself
    return None if config.form == "tokens" else config.budget_tokens
