"""Decisions for tracing tools: scores of Langfuse, feedback of LangSmith, assessments of MLflow."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypedDict
from uuid import UUID, uuid5

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, write_atomic
from certify_assets.operations.batch_record import batch_names, decided
from certify_assets.operations.layout import PROVISIONAL, decisions_of

#: name of the score or feedback
DECISION_NAME: Final = "certify_decision"
# under which the ids of scores and feedback are made: a decision that is exported again has the id
# that it had, and replaces what is there
_NAMESPACE: Final = UUID("0d1b3a56-7c43-5f0e-9d52-3f6b6a0c7e21")
# Langfuse refuses requests of more than 3.5 MB
_REQUEST_BYTES: Final = 3_000_000
#: what LangSmith averages: the share that was released
_SCORES: Final = MappingProxyType({"release": 1.0, "reject": 0.0})


class DecisionFacts(TypedDict):
    """What a decision depends on, as metadata of the score."""

    corpus: str
    batch: str
    judge: str
    judge_score: float | None
    reason: str
    certificate_sha256: str
    ledger: str  # corpus, number and hash of the event with which its batch was decided


@dataclass(frozen=True, kw_only=True)
class FinalDecision:
    """What was decided of one run, and when."""

    trajectory_id: str
    decision: str
    time: str
    facts: DecisionFacts

    def identity(self, tool: str) -> str:
        """Return an id that every export of this run has."""
        parts = (tool, self.facts["corpus"], self.trajectory_id, DECISION_NAME)
        return str(uuid5(_NAMESPACE, json.dumps(parts)))

    def comment(self) -> str:
        """Say why, in one line."""
        judge = f" by {self.facts['judge']}" if self.facts["judge"] else ""
        return f"{self.decision}{judge}: {self.facts['reason']}"


class ScoreBody(TypedDict):
    """A score of Langfuse's API."""

    id: str
    traceId: str
    name: str
    dataType: str
    value: str
    comment: str
    metadata: DecisionFacts


class ScoreEvent(TypedDict):
    """An event of Langfuse's ingestion, which a repeated id does not repeat."""

    id: str
    type: str
    timestamp: str
    body: ScoreBody


class FeedbackOrigin(TypedDict):
    """Who gave feedback of LangSmith."""

    type: str
    metadata: DecisionFacts


class FeedbackRecord(TypedDict):
    """Feedback of LangSmith's API."""

    id: str
    run_id: str
    trace_id: str
    key: str
    score: float | None
    value: str
    comment: str
    created_at: str
    feedback_source: FeedbackOrigin


@dataclass(frozen=True, kw_only=True)
class ExportedDecisions:
    """Files that were written, or assessments, and the runs that are not among them."""

    files: tuple[Path, ...]
    written: int
    provisional: int
    # runs whose ids are none of the tool's, or of no trace there
    foreign: int
    # assessments that were there already
    unchanged: int = 0


def export_decisions(
    corpus: Corpus, path: Path, tool: str, *, batch: str = ""
) -> ExportedDecisions:
    """Write the decisions on a corpus, or on one batch, for langfuse or langsmith."""
    found, final = _decided(corpus, batch)
    ours = [item for item in final if _TOOLS[tool].knows(item.trajectory_id)]
    if not ours:
        why = (
            f"the ids of its runs, such as {final[0].trajectory_id!r}, are none of {tool}'s"
            if final
            else "nothing is decided finally"
        )
        raise InputError(f"{corpus} has no decision to write: {why}.")
    parts = _TOOLS[tool].written(ours)
    files = tuple(
        path if not place else path.with_name(f"{path.stem}-{place + 1}{path.suffix}")
        for place in range(len(parts))
    )
    for file, part in zip(files, parts, strict=True):
        try:
            write_atomic(file, part)
        except OSError as error:
            raise InputError(
                f"{file} cannot be written ({error.strerror}); choose another place."
            ) from None
    return ExportedDecisions(
        files=files,
        written=len(ours),
        provisional=found - len(final),
        foreign=len(final) - len(ours),
    )


def log_decisions(corpus: Corpus, address: str, *, batch: str = "") -> ExportedDecisions:
    """Log the decisions on a corpus, or on one batch, as assessments of MLflow's traces.

    Each is there once, however often it is logged.
    """
    from certify_assets.storage.traces import TraceVerdict, log_verdicts

    found, final = _decided(corpus, batch)
    if not final:
        raise InputError(f"{corpus} has no decision to log: nothing is decided finally.")
    logged = log_verdicts(
        address,
        (
            TraceVerdict(
                item.trajectory_id,
                item.decision,
                item.facts["reason"],
                item.facts["certificate_sha256"],
            )
            for item in final
        ),
    )
    return ExportedDecisions(
        files=(),
        written=logged.logged,
        provisional=found - len(final),
        foreign=len(logged.unknown),
        unchanged=logged.unchanged,
    )


def _decided(corpus: Corpus, batch: str) -> tuple[int, list[FinalDecision]]:
    """Return how many runs of the batches are decided, and what is decided of them finally."""
    known = batch_names(corpus)
    if batch and batch not in known:
        raise InputError(
            f"{corpus} has no decided batch {batch!r}; it has {', '.join(known) or 'none'}."
        )
    found = {
        item.trajectory_id: item
        for key in ([batch] if batch else known)
        for item in _decisions(corpus, key)
    }
    return len(found), [item for item in found.values() if item.decision != PROVISIONAL]


def _decisions(corpus: Corpus, batch: str) -> Iterator[FinalDecision]:
    made = decided(corpus, batch)
    for row in decisions_of(corpus, batch).to_dict("records"):
        score = float(row["score"])
        yield FinalDecision(
            trajectory_id=str(row["trajectory_id"]),
            decision=str(row["decision"]),
            time=made.time,
            facts={
                "corpus": corpus.name,
                "batch": batch,
                "judge": str(row["judge"]),
                "judge_score": score if math.isfinite(score) else None,
                "reason": str(row["reason"]),
                "certificate_sha256": str(row["certificate_sha256"]),
                "ledger": f"{corpus}:{made.sequence}:{made.sha256}",
            },
        )


def langfuse_scores(decisions: Iterable[FinalDecision]) -> list[ScoreEvent]:
    """Return one event of Langfuse's ingestion a decision."""
    events: list[ScoreEvent] = []
    for item in decisions:
        body: ScoreBody = {
            "id": item.identity("langfuse"),
            "traceId": item.trajectory_id,
            "name": DECISION_NAME,
            "dataType": "CATEGORICAL",
            "value": item.decision,
            "comment": item.comment(),
            "metadata": item.facts,
        }
        # a decision that changed is another event, of the same score
        event = str(uuid5(_NAMESPACE, canonical_json(body).decode("utf-8")))
        events.append({"id": event, "type": "score-create", "timestamp": item.time, "body": body})
    return events


def langsmith_feedback(decisions: Iterable[FinalDecision]) -> list[FeedbackRecord]:
    """Return one record of feedback a decision, on the outermost run of its trace."""
    return [
        {
            "id": item.identity("langsmith"),
            "run_id": item.trajectory_id,
            "trace_id": item.trajectory_id,
            "key": DECISION_NAME,
            "score": _SCORES.get(item.decision),
            "value": item.decision,
            "comment": item.comment(),
            "created_at": item.time,
            "feedback_source": {"type": "model", "metadata": item.facts},
        }
        for item in decisions
    ]


def _requests(decisions: Sequence[FinalDecision]) -> list[bytes]:
    """Write bodies of POST /api/public/ingestion, as many as its limit asks for."""
    batches: list[list[bytes]] = [[]]
    size = 0
    for event in langfuse_scores(decisions):
        line = canonical_json(event).rstrip(b"\n")
        if batches[-1] and size + len(line) > _REQUEST_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(line)
        size += len(line) + 2
    return [b'{"batch":[\n' + b",\n".join(lines) + b"\n]}\n" for lines in batches]


def _lines(decisions: Sequence[FinalDecision]) -> list[bytes]:
    """Write bodies of POST /feedback, one a line."""
    return [b"".join(map(canonical_json, langsmith_feedback(decisions)))]


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


@dataclass(frozen=True)
class _Tool:
    """How a tool takes decisions, and which ids are its own."""

    written: Callable[[Sequence[FinalDecision]], list[bytes]]
    knows: Callable[[str], bool]


_TOOLS: Final[Mapping[str, _Tool]] = MappingProxyType(
    {
        # any text may be the id of a trace
        "langfuse": _Tool(_requests, bool),
        "langsmith": _Tool(_lines, _is_uuid),
    }
)
