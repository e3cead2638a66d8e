"""A judge that asks a server, what its scoring cost, and its answers in the data root."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import Bill, JudgeProvenance, Scores
from certify_assets.judges.endpoint.client import Client
from certify_assets.judges.endpoint.config import EndpointConfig
from certify_assets.judges.endpoint.questions import (
    EndpointPrompt,
    Question,
    Reply,
    conclude,
    stated_probability,
    stated_vote,
)
from certify_assets.judges.endpoint.scoring import (
    AnswerJournal,
    Answers,
    EndpointSetup,
    ask_all,
    complete,
    connect,
    fitted,
)
from certify_assets.judges.endpoint.settings import Asking, Prices, Server
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import JudgeRecord, renderer
from certify_assets.storage.store import Store

_SUMMED = (
    "decisions",
    "scored",
    "answers",
    "unparsed_answers",
    "same_votes",
    "requests",
    "retries",
    "cache_hits",
    "prompt_tokens",
    "completion_tokens",
    "uncounted_answers",
    "cost",
    "cost_now",
    "seconds",
    "cut_texts",
)


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """Counts of one scoring."""

    # texts, and those with a verdict
    decisions: int
    scored: int
    # texts without, by reason: unparsed, missing, not_finite, refused or failed
    unscored: Mapping[str, int]
    # answers read, and those in which no verdict was found; with k votes a text has k
    answers: int
    unparsed_answers: int
    # texts whose votes, two or more, are word for word the same: where that is most of them, the
    # server does not sample
    same_votes: int
    # sent now (those sent again included), sent again, and answers that the journal had
    requests: int
    retries: int
    cache_hits: int
    # of every answer, those of the journal included, as the server counts them
    prompt_tokens: int
    completion_tokens: int
    uncounted_answers: int  # answers without usage: tokens and cost then are lower bounds
    # of all answers, and of those asked for now
    cost: float
    cost_now: float
    currency: str
    seconds: float  # wall time of this scoring
    # what the server said it is
    models: tuple[str, ...]
    fingerprints: tuple[str, ...]
    journal_sha256: str  # hash of the last line of the journal
    cut_texts: int = 0  # texts whose middle was cut to the budget of tokens

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
        lists = {"models": list(self.models), "fingerprints": list(self.fingerprints)}
        return cast("Bill", {**asdict(self), **lists, **finite})

    @classmethod
    def merged(cls, reports: Sequence[EndpointReport]) -> EndpointReport:
        """Add up the scorings of several tables, in their order."""
        models = tuple(sorted({name for report in reports for name in report.models}))
        if len(models) > 1:
            raise IntegrityError(
                f"the server answered as {' and as '.join(models)} in one scoring; pin one model "
                "and score again."
            )
        unscored: Counter[str] = Counter()
        for report in reports:
            unscored.update(report.unscored)
        sums = {name: sum(getattr(report, name) for report in reports) for name in _SUMMED}
        prints = tuple(sorted({name for report in reports for name in report.fingerprints}))
        return cls(
            unscored=dict(sorted(unscored.items())),
            currency=reports[-1].currency,
            journal_sha256=reports[-1].journal_sha256,
            models=models,
            fingerprints=prints,
            **sums,
        )


@dataclass(frozen=True, eq=False)
class EndpointRun:
    """Scores with their bill."""

    scores: Scores
    report: EndpointReport
    reasons: tuple[str, ...]  # why a text has no score; empty where it has one
    tokens: NDArray[np.int64]  # prompt and completion tokens of every text
    costs: NDArray[np.float64]  # in the currency of the report


@dataclass(frozen=True)
class EndpointJudge:
    """A judge that asks a server; make one by `connect`."""

    asked: EndpointSetup  # server, question, and what the server says of itself
    name: str = "endpoint"  # short name, unique among the judges of a project
    renderer_sha256: str = ""  # renderer of the texts it is given
    prices: Prices = field(default_factory=Prices)  # for the report
    journal: Path | None = None  # file of answers; a scoring that was interrupted resumes from it

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
                asking.verdict_ids,
                {},
                max_failed,
                budget_tokens,
            ),
            **rest,
        )
        return replace(judge, asked=complete(connect(judge.asked, judge.journal)))

    def provenance(self) -> JudgeProvenance:
        """Say what the scores depend on: no address beyond the plain URL, no key."""
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
        """Judge rendered trajectories and say what it cost."""
        begun = time.monotonic()
        return complete(self._run(list(texts), progress, begun))

    def questions(self, texts: Sequence[str]) -> list[Question]:
        """Return what the server is asked about texts, cut as it was when they were scored."""
        return complete(self._questions(texts))

    async def _questions(self, texts: Sequence[str]) -> list[Question]:
        with AnswerJournal(self.journal) as journal:
            async with Client(replace(self.asked.server, key_variable=None)) as client:
                return [
                    (await fitted(client, journal, replace(self.asked, replay=True), text))[0]
                    for text in texts
                ]

    async def _run(
        self, texts: list[str], progress: Callable[[int, int], None] | None, begun: float
    ) -> EndpointRun:
        # the journal needs no key
        server = (
            replace(self.asked.server, key_variable=None)
            if self.asked.replay
            else self.asked.server
        )
        with AnswerJournal(self.journal) as journal:
            async with Client(server) as client:
                answers = await ask_all(client, journal, self.asked, texts, progress)
            sent = {
                "requests": client.requests,
                "retries": client.retries,
                "journal_sha256": journal.head,
            }
        return self._concluded(texts, answers, {**sent, "seconds": time.monotonic() - begun})

    def _concluded(
        self, texts: list[str], answers: Answers, sent: Mapping[str, Any]
    ) -> EndpointRun:
        logs = np.full((len(texts), 2), np.nan)
        reasons, tokens = [], np.zeros((len(texts), 2), dtype=np.int64)
        by_row: dict[int, list[Reply]] = {row: [] for row in range(len(texts))}
        for (row, _), reply in sorted(answers.replies.items(), key=lambda item: item[0]):
            by_row[row].append(reply)
            tokens[row] += (reply.prompt_tokens or 0, reply.completion_tokens or 0)
        for row, replies in by_row.items():
            if row in answers.lost:
                reasons.append(answers.lost[row])
            else:
                *logs[row], reason = conclude(
                    self.asked.asking.mode, replies, self.asked.asking.votes
                )
                reasons.append(reason)
        costs = np.array(
            [self.prices.cost(int(prompt), int(completion)) for prompt, completion in tokens]
        )
        return EndpointRun(
            Scores(logs[:, 0].copy(), logs[:, 1].copy()),
            self._report(answers, reasons, tokens, sent),
            tuple(reasons),
            tokens,
            costs,
        )

    def _report(
        self,
        answers: Answers,
        reasons: list[str],
        tokens: np.ndarray[Any, Any],
        sent: Mapping[str, Any],
    ) -> EndpointReport:
        replies = answers.replies
        models = tuple(sorted({reply.model for reply in replies.values() if reply.model}))
        if len(models) > 1:
            raise IntegrityError(
                f"the server answered as {' and as '.join(models)} in one scoring; pin one model "
                "and score again."
            )
        fresh = [replies[place] for place in answers.fresh]
        total = tokens.sum(axis=0)
        unscored = Counter(reason for reason in reasons if reason)
        return EndpointReport(
            decisions=len(reasons),
            scored=len(reasons) - sum(unscored.values()),
            unscored=dict(sorted(unscored.items())),
            answers=len(replies),
            unparsed_answers=sum(
                _unparsed(self.asked.asking.mode, reply) for reply in replies.values()
            ),
            cut_texts=len(answers.cut),
            same_votes=_same_votes(answers) if self.asked.asking.mode == "vote" else 0,
            cache_hits=answers.cache_hits,
            prompt_tokens=int(total[0]),
            completion_tokens=int(total[1]),
            uncounted_answers=sum(
                reply.prompt_tokens is None or reply.completion_tokens is None
                for reply in replies.values()
            ),
            cost=self.prices.cost(int(total[0]), int(total[1])),
            cost_now=sum(
                self.prices.cost(reply.prompt_tokens or 0, reply.completion_tokens or 0)
                for reply in fresh
            ),
            currency=self.prices.currency,
            models=models,
            fingerprints=tuple(
                sorted({reply.fingerprint for reply in replies.values() if reply.fingerprint})
            ),
            **sent,
        )


def _unparsed(mode: str, reply: Reply) -> bool:
    if mode == "logprob":
        return bool(reply.reason)
    return (stated_probability if mode == "cot" else stated_vote)(reply.text, cut=reply.cut) is None


def _same_votes(answers: Answers) -> int:
    texts: dict[int, list[str]] = {}
    for (row, _), reply in answers.replies.items():
        texts.setdefault(row, []).append(reply.text)
    return sum(len(said) > 1 and len(set(said)) == 1 for said in texts.values())


@dataclass(frozen=True, eq=False)
class BilledJudge:
    """An endpoint judge whose answers are kept in the data root, with a bill of each scoring."""

    judge: EndpointJudge
    store: Store
    corpus: str
    runs: list[EndpointRun] = field(default_factory=list)  # what was scored so far
    # called with the answers that are there and the answers in all
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
        with journal(JudgedCorpus(Corpus(self.store, self.corpus), self.name)) as path:
            run = replace(self.judge, journal=path).run(texts, progress=self.progress)
        self.runs.append(run)
        return run.scores

    def questions(self, texts: Sequence[str]) -> list[Any]:
        """Return what the server was asked about texts."""
        with journal(JudgedCorpus(Corpus(self.store, self.corpus), self.name)) as path:
            return list(replace(self.judge, journal=path).questions(texts))

    def bill(self) -> Bill:
        """Return counts, tokens, seconds and cost of all that was scored."""
        return EndpointReport.merged([run.report for run in self.runs]).to_dict()


@contextmanager
def journal(judge: JudgedCorpus) -> Iterator[Path]:
    """Yield the file of answers; that of a remote data root is fetched, and always put back."""
    key = judge.key("answers.jsonl")
    if judge.store.is_local:
        yield judge.store.local_path(key)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.jsonl"
        if judge.store.exists(key):
            path.write_bytes(judge.store.read_bytes(key))
        try:
            yield path
        finally:
            if path.exists():
                judge.store.write_bytes(key, path.read_bytes())


def register(judge: JudgedCorpus, config: EndpointConfig) -> EndpointJudge:
    """Ask the server what it is; the judge that it can be asked as is not stored yet."""
    with journal(judge) as path:
        asked = _connected(judge.name, config, path).asked
    return EndpointJudge(asked, judge.name, renderer().sha256)


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
    found = EndpointJudge(asked, judge.name, renderer().sha256, config.prices)
    if found.provenance().adapter_sha256 != record.adapter_sha256:
        raise StaleCertificateError(
            f"the registration of {judge} on {judge.corpus} was altered; "
            f"materialize judges/{judge}/model again."
        )
    if not replay:
        _require_same_server(judge, found, config)
    return BilledJudge(found, judge.store, judge.corpus.name)


def _require_same_server(judge: JudgedCorpus, then: EndpointJudge, config: EndpointConfig) -> None:
    with journal(judge) as path:
        now = _connected(judge.name, config, path).asked.identity
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


def _connected(name: str, config: EndpointConfig, path: Path) -> EndpointJudge:
    return EndpointJudge.connect(
        config.server,
        config.asking,
        config.prompt(),
        budget_tokens=_budget(config),
        name=name,
        journal=path,
    )


def _budget(config: EndpointConfig) -> int | None:
    # an encoder cuts for itself
    return None if config.form == "tokens" else config.budget_tokens
