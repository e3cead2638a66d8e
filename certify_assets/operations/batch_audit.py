"""The audit of a batch: its provisional runs, frozen, and the draw whose labels decide them."""

# The order of writing is the promise. The provisional runs with their scores and plans are frozen
# by a hash, then the seed is drawn from the operating system into the journal of draws, a chained
# line that is not rewritten, and only then the document of the audit is stored. A kill after the
# line leaves the seed, and the next run of the same frozen batch finds it. A line of the same or
# of overlapping runs is a further try: the first is made at the whole δ, the j-th at the j-th
# share of δ·6/(π²j²).

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.certificates.batch import Batch, BatchCertificate, BatchPlan
from certify_assets.certificates.batch_sides import SidesDraw, SidesPlan, sides_sha256
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.operations.labels import read_labels, resolve_labels
from certify_assets.operations.layout import (
    PROVISIONAL,
    batch_key,
    batch_names,
    draws_key,
    first_decisions_of,
)
from certify_assets.operations.spending import Schedule
from certify_assets.storage.journal import Journal, LineFormat, canonical_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

SCHEMA: Final = "certify_assets/batch_audit/1"
CLOSING_SCHEMA: Final = "certify_assets/batch_closing/1"
#: states of a batch with provisional runs
STATES: Final = ("provisional", "certified", "to_reviewers")
_FORMAT = LineFormat(number="number", encode=canonical_line, entry="a draw")
_EDITED = (
    "is not the audit that was drawn: it was edited; restore it from a backup. Nothing of the "
    "batch is decided until then."
)


@dataclass(frozen=True)
class DrawnSeed:
    """A line of the journal of draws: a frozen batch and its seed."""

    batch: str
    batch_sha256: str
    seed: int
    time: str
    number: int = 0  # line of the journal, from 1; 0 until it is written
    previous: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """The document of an audit, as it was drawn; never rewritten."""

    schema: str = SCHEMA
    corpus: str
    batch: str
    time: str
    alphas: Mapping[str, float]  # budget of each side that may be certified
    delta: float  # of all sides together
    draws: int  # of these runs or of overlapping ones so far, this one included
    runs: int  # provisional ones
    plan: SidesPlan
    batch_sha256: str
    seed: int
    order: tuple[str, ...]  # drawn runs, those of one side after those of the other

    @property
    def promise(self) -> str:
        """Which of the two promises is made, and of what."""
        budgets = " and ".join(f"{alpha:g} ({side})" for side, alpha in self.alphas.items())
        return (
            "batch certificate: with confidence "
            f"{100 * (1 - self.delta):.4g} % over the draw alone, at most {budgets} of the runs of "
            "this batch that a certified threshold decides are wrong, whatever their agents and "
            "tasks."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the document as a JSON object."""
        plans = [plan.to_dict() for plan in self.plan.plans]
        return {**asdict(self), "plan": {"plans": plans, "cut": self.plan.cut}}

    @classmethod
    def from_dict(cls, document: Any) -> AuditRecord:
        """Read the document; a `KeyError`, `TypeError` or `ValueError` says that it is none."""
        values = dict(document)
        if values["schema"] != SCHEMA:
            raise ValueError(f"it is not {SCHEMA}")
        plan = values.pop("plan")
        plans = tuple(BatchPlan.from_dict(item) for item in plan["plans"])
        order = tuple(values.pop("order"))
        return cls(**values, plan=SidesPlan(plans, plan["cut"]), order=order)


@dataclass(frozen=True, kw_only=True)
class ClosingRecord:
    """What the labels of a draw decided; never rewritten."""

    schema: str = CLOSING_SCHEMA
    corpus: str
    batch: str
    time: str
    state: str  # certified or to_reviewers
    audit_sha256: str  # of audit.json
    decisions_sha256: str  # of the decisions that it completes
    closed_sha256: str  # of the table with what became of every provisional run
    labels_lines: int  # of the journal of labels, which were read
    labels_used: int
    outcomes: Mapping[str, int]  # of the labels that were counted
    certificates: tuple[Mapping[str, Any], ...]  # a `BatchCertificate` a side
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class BatchAudit:
    """The audit of a batch, opened and verified, with the labels that there are."""

    corpus: Corpus
    record: AuditRecord
    draw: SidesDraw
    closing: ClosingRecord | None

    @classmethod
    def load(cls, corpus: Corpus, batch: str) -> BatchAudit | None:
        """Open the audit of a decided batch; None where no run of it is provisional."""
        key = batch_key(corpus.name, batch, "audit.json")
        rows = first_decisions_of(corpus, batch)
        rows = rows[rows["decision"] == PROVISIONAL]
        if not len(rows) and not corpus.store.exists(key):
            return None
        where = corpus.store.locate(key)
        try:
            record = AuditRecord.from_dict(corpus.store.read_json(key))
            draw = SidesDraw(record.plan, frozen_batch(rows), record.seed)
            order = tuple(name for names in draw.orders for name in names)
            same = (
                (record.corpus, record.batch, record.runs) == (corpus.name, batch, len(rows))
                and sides_sha256(record.plan, draw.batch) == record.batch_sha256
                and order == record.order
            )
        except (CertifyError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise IntegrityError(f"{where} {_EDITED} ({error})") from None
        lines = [line for line in read_draws(corpus) if line.batch == batch]
        if not same or (record.batch_sha256, record.seed) not in {
            (line.batch_sha256, line.seed) for line in lines
        }:
            raise IntegrityError(f"{where} {_EDITED}")
        return cls(corpus, record, draw, _closing(corpus, batch))

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return "provisional" if self.closing is None else self.closing.state

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the provisional runs of the batch, decided by now or not."""
        return self.draw.batch.trajectories

    @cached_property
    def outcomes(self) -> Mapping[str, int]:
        """Outcomes of drawn runs in the journal of labels; without those that are tied."""
        drawn = set(self.record.order)
        return {
            name: found.outcome
            for name, found in resolve_labels(read_labels(self.corpus)).items()
            if found.outcome is not None and name in drawn
        }

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """Ids of the runs to label now, in the order of the draw; none of a closed batch."""
        return () if self.closing is not None else self.draw.wanted(self.outcomes)

    @cached_property
    def certificates(self) -> tuple[BatchCertificate, ...]:
        """What the labels say of each side; for a closed batch, those that closed it."""
        known = self.outcomes if self.closing is None else self.closing.outcomes
        return self.draw.close(known)

    @property
    def labels_used(self) -> int:
        """Labels that count so far: those of the first runs of each side's draw."""
        return sum(item.labels_used for item in self.certificates)


def batch_audits(corpus: Corpus) -> list[BatchAudit]:
    """Return the audits of all decided batches, the oldest first."""
    found = (BatchAudit.load(corpus, name) for name in batch_names(corpus))
    return [item for item in found if item is not None]


def frozen_batch(rows: pd.DataFrame) -> Batch:
    """Return the runs of a table of decisions as a batch."""
    return Batch.of(
        rows["trajectory_id"].tolist(), rows["task_id"].tolist(), rows["score"].to_numpy(np.float64)
    )


def read_draws(corpus: Corpus) -> list[DrawnSeed]:
    """Return the journal of draws, the oldest first."""
    return _journal(corpus).read()


def earlier_draws(corpus: Corpus, batch: str, runs: Iterable[str], batch_sha256: str = "") -> int:
    """Return how many draws were made of the same or of overlapping runs, other than this one."""
    wanted = set(runs)
    lines = [line for line in read_draws(corpus) if line.batch_sha256 != batch_sha256]
    return sum(line.batch == batch or _overlaps(corpus, line.batch, wanted) for line in lines)


def _overlaps(corpus: Corpus, batch: str, runs: set[str]) -> bool:
    key = batch_key(corpus.name, batch, "identities.parquet")
    if not corpus.store.exists(key):
        # what was drawn from a batch that is gone is not known any more
        return True
    return bool(runs & set(corpus.store.read_table(key)["trajectory_id"]))


def share_of_delta(delta: float, draw: int) -> float:
    """Return δ of the draw of that number, from 1: the whole for the first."""
    return delta if draw == 1 else Schedule(total=delta).share(draw)


def draw_audit(
    corpus: Corpus, batch: str, frozen: Batch, plan: SidesPlan, *, alphas: Mapping[str, float],
    delta: float, draws: int,
) -> AuditRecord:  # fmt: skip
    """Draw a frozen batch and store its audit; a batch whose seed is recorded keeps it."""
    digest = sides_sha256(plan, frozen)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = _seed(corpus, DrawnSeed(batch, digest, secrets.randbits(62), now))
    draw = SidesDraw(plan, frozen, line.seed)
    record = AuditRecord(
        corpus=corpus.name,
        batch=batch,
        time=line.time,
        alphas=alphas,
        delta=delta,
        draws=draws,
        runs=len(frozen),
        plan=plan,
        batch_sha256=digest,
        seed=line.seed,
        order=tuple(name for names in draw.orders for name in names),
    )
    corpus.store.write_json(batch_key(corpus.name, batch, "audit.json"), record.to_dict())
    return record


def _seed(corpus: Corpus, line: DrawnSeed) -> DrawnSeed:
    """Return the line of a frozen batch: the one that is there, else this one, appended."""
    mine = (line.batch, line.batch_sha256)
    journal = _journal(corpus)
    added = journal.append_unless(lambda known: (known.batch, known.batch_sha256) == mine, line)
    return added or next(
        known for known in journal.read() if (known.batch, known.batch_sha256) == mine
    )


def _journal(corpus: Corpus) -> Journal[DrawnSeed]:
    return Journal(corpus.store, draws_key(corpus.name), lambda line: DrawnSeed(**line), _FORMAT)


def _closing(corpus: Corpus, batch: str) -> ClosingRecord | None:
    key = batch_key(corpus.name, batch, "closing.json")
    if not corpus.store.exists(key):
        return None
    try:
        values = dict(corpus.store.read_json(key))
        values["certificates"] = tuple(values["certificates"])
        record = ClosingRecord(**values)
        stored = {
            "audit.json": record.audit_sha256,
            "decisions.parquet": record.decisions_sha256,
            "closed.parquet": record.closed_sha256,
        }
        same = record.schema == CLOSING_SCHEMA and all(
            corpus.store.sha256(batch_key(corpus.name, batch, name)) == sha256
            for name, sha256 in stored.items()
        )
    except (KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise IntegrityError(
            f"{corpus.store.locate(key)} is not of the audit and the tables next to it; restore "
            "the folder of the batch from a backup."
        )
    return record
