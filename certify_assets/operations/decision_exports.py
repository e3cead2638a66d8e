"""Decisions for tracing tools: scores of Langfuse, feedback of LangSmith, assessments of MLflow."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, write_atomic
from certify_assets.operations.batches import batch_names, decided
from certify_assets.operations.decisions import PROVISIONAL, decisions_of
from certify_assets.storage.events import head_text

#: name of the score or feedback
DECISION_NAME: Final = "certify_decision"
# under which the ids of scores and feedback are made: a decision that is exported again has the id
# that it had, and replaces what is there
_NAMESPACE: Final = UUID("0d1b3a56-7c43-5f0e-9d52-3f6b6a0c7e21")
# Langfuse refuses requests of more than 3.5 MB
_REQUEST_BYTES: Final = 3_000_000


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


@dataclass(frozen=True)
class _Decision:
    """What was decided of one run, when, and what it depends on."""

    run: str
    decision: str
    time: str
    facts: Mapping[str, Any]

    def identity(self, tool: str) -> str:
        """Return an id that every export of this run has."""
        parts = (tool, self.facts["corpus"], self.run, DECISION_NAME)
        return str(uuid5(_NAMESPACE, json.dumps(parts)))

    @property
    def comment(self) -> str:
        judge = f" by {self.facts['judge']}" if self.facts["judge"] else ""
        return f"{self.decision}{judge}: {self.facts['reason']}"


def export_decisions(
    corpus: Corpus, path: Path, tool: str, *, batch: str = ""
) -> ExportedDecisions:
    """Write the decisions on a corpus, or on one batch, for langfuse or langsmith."""
    found, final = _decided(corpus, batch)
    # any text may be the id of a trace of Langfuse
    ours = [item for item in final if tool == "langfuse" or _is_uuid(item.run)]
    if not ours:
        why = (
            f"the ids of its runs, such as {final[0].run!r}, are none of {tool}'s"
            if final
            else "nothing is decided finally"
        )
        raise InputError(f"{corpus} has no decision to write: {why}.")
    parts = _requests(ours) if tool == "langfuse" else [_feedback(ours)]
    files = [
        path,
        *(path.with_name(f"{path.stem}-{n}{path.suffix}") for n in range(2, 1 + len(parts))),
    ]
    for file, part in zip(files, parts, strict=True):
        try:
            write_atomic(file, part)
        except OSError as error:
            raise InputError(
                f"{file} cannot be written ({error.strerror}); choose another place."
            ) from None
    return ExportedDecisions(
        files=tuple(files),
        written=len(ours),
        provisional=found - len(final),
        foreign=len(final) - len(ours),
    )


def log_decisions(corpus: Corpus, address: str, *, batch: str = "") -> ExportedDecisions:
    """Log the decisions on a corpus, or on one batch, as assessments of MLflow's traces.

    Each is there once, however often it is logged.
    """
    from certify_assets.corpora.formats.mlflow_server import TraceVerdict, log_verdicts

    found, final = _decided(corpus, batch)
    if not final:
        raise InputError(f"{corpus} has no decision to log: nothing is decided finally.")
    names = ("reason", "certificate_sha256")
    verdicts = (
        TraceVerdict(item.run, item.decision, *(item.facts[name] for name in names))
        for item in final
    )
    logged = log_verdicts(address, verdicts)
    return ExportedDecisions(
        files=(),
        written=logged.logged,
        provisional=found - len(final),
        foreign=len(logged.unknown),
        unchanged=logged.unchanged,
    )


def _decided(corpus: Corpus, batch: str) -> tuple[int, list[_Decision]]:
    """Return how many runs of the batches are decided, and what is decided of them finally."""
    known = batch_names(corpus)
    if batch and batch not in known:
        raise InputError(
            f"{corpus} has no decided batch {batch!r}; it has {', '.join(known) or 'none'}."
        )
    # of a run that came again the later decision
    found = {item.run: item for name in known if batch in ("", name) for item in _of(corpus, name)}
    return len(found), [item for item in found.values() if item.decision != PROVISIONAL]


def _of(corpus: Corpus, batch: str) -> Iterator[_Decision]:
    made = decided(corpus, batch)
    about = {"corpus": corpus.name, "batch": batch}
    about["ledger"] = head_text(made.head)
    for row in decisions_of(corpus, batch).to_dict("records"):
        score = float(row["score"])
        facts = {name: str(row[name]) for name in ("judge", "reason", "certificate_sha256")}
        scored = {"judge_score": score if math.isfinite(score) else None}
        run, decision = str(row["trajectory_id"]), str(row["decision"])
        yield _Decision(run, decision, made.time, {**about, **facts, **scored})


def _requests(decisions: Sequence[_Decision]) -> list[bytes]:
    """Write bodies of POST /api/public/ingestion, as many as its limit asks for."""
    batches: list[list[bytes]] = [[]]
    size = 0
    for item in decisions:
        body = {
            "id": item.identity("langfuse"),
            "traceId": item.run,
            "name": DECISION_NAME,
            "dataType": "CATEGORICAL",
            "value": item.decision,
            "comment": item.comment,
            "metadata": item.facts,
        }
        # a decision that changed is another event, of the same score
        event = {"id": str(uuid5(_NAMESPACE, canonical_json(body).decode("utf-8")))}
        event |= {"type": "score-create", "timestamp": item.time}
        line = canonical_json({**event, "body": body}).rstrip(b"\n")
        if batches[-1] and size + len(line) > _REQUEST_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(line)
        size += len(line) + 2
    return [b'{"batch":[\n' + b",\n".join(lines) + b"\n]}\n" for lines in batches]


def _feedback(decisions: Sequence[_Decision]) -> bytes:
    """Write bodies of POST /feedback, one a line, on the outermost run of each trace."""
    # what LangSmith averages is the share that was released
    scores = {"release": 1.0, "reject": 0.0}
    records = (
        {
            "id": item.identity("langsmith"),
            "run_id": item.run,
            "trace_id": item.run,
            "key": DECISION_NAME,
            "score": scores.get(item.decision),
            "value": item.decision,
            "comment": item.comment,
            "created_at": item.time,
            "feedback_source": {"type": "model", "metadata": item.facts},
        }
        for item in decisions
    )
    return b"".join(map(canonical_json, records))


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
