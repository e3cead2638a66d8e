"""A judge behind an OpenAI-compatible server: connect, score, and the bill."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from certify_assets.errors import IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import JudgeProvenance, Scores
from certify_assets.judges.endpoint.client import Client
from certify_assets.judges.endpoint.connecting import connect
from certify_assets.judges.endpoint.fitting import fitted
from certify_assets.judges.endpoint.journal import Journal
from certify_assets.judges.endpoint.prompt import EndpointPrompt, Question
from certify_assets.judges.endpoint.replies import Reply, conclude, stated_probability, stated_vote
from certify_assets.judges.endpoint.report import EndpointReport, EndpointRun
from certify_assets.judges.endpoint.scoring import Answers, Asked, ask_all, complete
from certify_assets.judges.endpoint.settings import Asking, Prices, Server

__all__ = ["EndpointJudge"]


@dataclass(frozen=True)
class EndpointJudge:
    """A judge that asks a server; make one by `connect`.

    Parameters
    ----------
    asked : Asked
        Server, question, and what the server says of itself.
    name : str
        Short name, unique among the judges of a project.
    renderer_sha256 : str
        Renderer of the texts it is given.
    prices : Prices
        For the report.
    journal : Path, optional
        File of answers; a scoring that was interrupted goes on from it.
    """

    asked: Asked
    name: str = "endpoint"
    renderer_sha256: str = ""
    prices: Prices = field(default_factory=Prices)
    journal: Path | None = None

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
        """Ask the server what it is and, in mode logprob, settle by one real request how verdicts are read.

        Parameters
        ----------
        server : Server
        asking : Asking
        prompt : EndpointPrompt
        max_failed : int
            Texts that may stay unanswered, and unscored, before a scoring ends with an error.
        budget_tokens : int, optional
            Longest prompt; what does not fit is cut from the middle of the run.
        **rest
            Name, renderer_sha256, prices and journal of the judge.

        Raises
        ------
        InputError
            If the key is missing or refused, or the server cannot be used as asked.
        UnavailableError
            If it does not answer.
        """
        judge = cls(
            Asked(
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
        """Judge rendered trajectories and say what it cost.

        Parameters
        ----------
        texts : sequence of str
        progress : callable, optional
            Called with the requests answered and their total.

        Raises
        ------
        InputError, UnavailableError
            If the server cannot be used, or too many texts stay unanswered.
        IntegrityError
            If the journal was tampered with, or the server changed its model on the way.
        """
        begun = time.monotonic()
        return complete(self._run(list(texts), progress, begun))

    def questions(self, texts: Sequence[str]) -> list[Question]:
        """Return what the server is asked about texts, cut as it was when they were scored."""
        return complete(self._questions(texts))

    async def _questions(self, texts: Sequence[str]) -> list[Question]:
        with Journal(self.journal) as journal:
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
        with Journal(self.journal) as journal:
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
                f"the server answered as {' and as '.join(models)} in one scoring; pin one model and score again."
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
