"""Decisions for tracing tools: scores of Langfuse, feedback of LangSmith, assessments of MLflow."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
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
# what LangSmith averages is the share that was released
_RELEASED: Final = {"release": 1.0, "reject": 0.0}


@dataclass(frozen=True, kw_only=True)
class ExportedDecisions:
    """Files that were written, or assessments, and the runs that are not among them."""

    files: tuple[Path, ...] = ()
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
    comment: str
    facts: dict[str, Any]

    def identity(self, tool: str) -> str:
        """Return an id that every export of this run has."""
        parts = (tool, self.facts["corpus"], self.run, DECISION_NAME)
        return str(uuid5(_NAMESPACE, json.dumps(parts)))


def export_decisions(
    corpus: Corpus, path: Path, tool: str, *, batch: str = ""
) -> ExportedDecisions:
    """Write the decisions on a corpus, or on one batch, for langfuse or langsmith."""
    final, provisional = _decided(corpus, batch)
    # any text may be the id of a trace of Langfuse
    ours = [item for item in final if tool == "langfuse" or _is_uuid(item.run)]
    if not ours:
        raise InputError(
            f"{corpus} has no decision to write: the ids of its runs, such as {final[0].run!r}, "
            f"do not come from {tool}."
        )
    parts = [*_requests(ours)] if tool == "langfuse" else [_feedback(ours)]
    others = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in range(2, 1 + len(parts)))
    files = (path, *others)
    for file, part in zip(files, parts, strict=True):
        try:
            write_atomic(file, part)
        except OSError as error:
            raise InputError(
                f"{file} cannot be written ({error.strerror}). Choose another path."
            ) from None
    foreign = len(final) - len(ours)
    return ExportedDecisions(
        files=files, written=len(ours), provisional=provisional, foreign=foreign
    )


def log_decisions(corpus: Corpus, address: str, *, batch: str = "") -> ExportedDecisions:
    """Log the decisions on a corpus, or on one batch, as assessments of MLflow's traces.

    Each is there once, however often it is logged.
    """
    from certify_assets.corpora.formats.mlflow_server import TraceVerdict, log_verdicts

    final, provisional = _decided(corpus, batch)
    names = ("reason", "certificate_sha256")
    logged = log_verdicts(
        address,
        (
            TraceVerdict(item.run, item.decision, *(item.facts[name] for name in names))
            for item in final
        ),
    )
    return ExportedDecisions(
        written=logged.logged,
        provisional=provisional,
        foreign=len(logged.unknown),
        unchanged=logged.unchanged,
    )


def _decided(corpus: Corpus, batch: str) -> tuple[list[_Decision], int]:
    """Return what is decided finally, and how many runs are not."""
    known = batch_names(corpus)
    if batch and batch not in known:
        raise InputError(
            f"{corpus} has no decided batch {batch!r}. It has {', '.join(known) or 'none'}."
        )
    # of a run that came again the later decision
    found = {item.run: item for name in known if batch in ("", name) for item in _of(corpus, name)}
    final = [item for item in found.values() if item.decision != PROVISIONAL]
    if not final:
        raise InputError(f"{corpus} has no decision to export: no decision is final.")
    return final, len(found) - len(final)


def _of(corpus: Corpus, batch: str) -> Iterator[_Decision]:
    made = decided(corpus, batch)
    about = {"corpus": corpus.name, "batch": batch, "ledger": head_text(made.head)}
    for row in decisions_of(corpus, batch).to_dict("records"):
        facts = {name: str(row[name]) for name in ("judge", "reason", "certificate_sha256")}
        score, decision = float(row["score"]), str(row["decision"])
        by = f" by {facts['judge']}" if facts["judge"] else ""
        yield _Decision(
            str(row["trajectory_id"]),
            decision,
            made.time,
            f"{decision}{by}: {facts['reason']}",
            {**about, **facts, "judge_score": score if math.isfinite(score) else None},
        )


def _requests(decisions: Sequence[_Decision]) -> Iterator[bytes]:
    """Give bodies of POST /api/public/ingestion, as many as its limit asks for."""
    lines, size = list[bytes](), 0
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
        if lines and size + len(line) > _REQUEST_BYTES:
            yield _request(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 2
    yield _request(lines)


def _request(lines: Sequence[bytes]) -> bytes:
    return b'{"batch":[\n' + b",\n".join(lines) + b"\n]}\n"


def _feedback(decisions: Sequence[_Decision]) -> bytes:
    """Write bodies of POST /feedback, one a line, on the outermost run of each trace."""
    records = (
        {
            "id": item.identity("langsmith"),
            "run_id": item.run,
            "trace_id": item.run,
            "key": DECISION_NAME,
            "score": _RELEASED.get(item.decision),
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
