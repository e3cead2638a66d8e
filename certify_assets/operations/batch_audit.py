"""The audit of provisional runs: those of one batch or of several, frozen, and their draw."""

# It is in the folder of the last of its batches; each of several has a pooled.json that names it.

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.certificates.batch import Batch, BatchCertificate
from certify_assets.certificates.batch_sides import SidesDraw, SidesPlan, sides_sha256
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.specs import SIDES
from certify_assets.operations.batch_record import batch_names, decided
from certify_assets.operations.labels import (
    Label,
    labels_up_to,
    overruled,
    read_labels,
    resolve_labels,
)
from certify_assets.operations.layout import batch_key, draw_of, draws_key, provisional_rows
from certify_assets.storage.journal import Journal, LineFormat, canonical_line, heads_key
from certify_assets.storage.snapshot import remembered

if TYPE_CHECKING:
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

    batch: str  # the last of them
    batch_sha256: str
    draws: int  # of the same or of overlapping runs so far, this one included
    seed: int
    time: str
    batches: tuple[str, ...]  # all of them
    number: int = 0  # line of the journal, from 1; 0 until it is written
    previous: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """The document of an audit, as it was drawn; never rewritten."""

    schema: str = SCHEMA
    corpus: str
    batch: str
    time: str
    draws: int  # of these runs or of overlapping ones so far, this one included
    runs: int  # provisional ones
    plan: SidesPlan
    batch_sha256: str
    seed: int
    order: tuple[str, ...]  # drawn runs, those of one side after those of the other
    batches: tuple[str, ...]  # whose runs these are

    @property
    def delta(self) -> float:
        """Risk limit of all sides together."""
        return math.fsum(plan.delta for plan in self.plan.plans)

    @property
    def promise(self) -> str:
        """Which of the two promises is made, and of what."""
        budgets = " and ".join(f"{plan.alpha:g} ({plan.side})" for plan in self.plan.plans)
        several = len(self.batches) > 1
        where = f"these {len(self.batches)} batches together" if several else "this batch"
        return (
            "batch certificate: with confidence "
            f"{100 * (1 - self.delta):.4g} % over the draw alone, the judge is wrong on at most "
            f"{budgets} of the runs of {where} inside a certified threshold, those that were "
            "labelled and corrected included, whatever their agents and tasks."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the document as a JSON object."""
        return {**asdict(self), "plan": self.plan.to_dict()}

    @classmethod
    def from_dict(cls, document: Any) -> AuditRecord:
        """Read the document; a `KeyError`, `TypeError` or `ValueError` says that it is none."""
        values = dict(document)
        if values["schema"] != SCHEMA:
            raise ValueError(f"it is not {SCHEMA}")
        plan = SidesPlan.from_dict(values.pop("plan"))
        order, batches = (tuple(values.pop(name)) for name in ("order", "batches"))
        return cls(**values, plan=plan, order=order, batches=batches)


@dataclass(frozen=True, kw_only=True)
class ClosingRecord:
    """What the labels of a draw decided; never rewritten."""

    schema: str = CLOSING_SCHEMA
    corpus: str
    batch: str
    time: str
    state: str  # certified or to_reviewers
    audit_sha256: str  # of audit.json
    decisions_sha256: str  # of the decisions that it completes; as `decisions_sha256`
    closed_sha256: str  # of the table with what became of every provisional run
    labels_sequence: int  # number of the event of the last label that was read
    labels_used: int
    outcomes: Mapping[str, int]  # of the drawn runs that were labelled; the first of them count
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
        """Open the audit in the folder of a decided batch.

        None where no run of it is provisional, where they wait for a draw, and where another
        batch has it (`layout.draw_of`).
        """
        if draw_of(corpus, batch) != batch and not _is_lost(corpus, batch):
            return None
        record, draw = _verified(corpus, batch)
        return cls(corpus, record, draw, _closing(corpus, record, draw))

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return "provisional" if self.closing is None else self.closing.state

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the provisional runs that are drawn from, decided by now or not."""
        return self.draw.batch.trajectories

    @cached_property
    def outcomes(self) -> Mapping[str, int]:
        """Outcomes of drawn runs in the journal of labels, without those that are tied; of a
        closed batch those that closed it.
        """
        if self.closing is not None:
            return self.closing.outcomes
        return self.said(read_labels(self.corpus))

    def said(self, labels: Sequence[Label]) -> dict[str, int]:
        """Return the outcomes of drawn runs that lines of the journal amount to."""
        drawn = set(self.record.order)
        return {
            name: found.outcome
            for name, found in resolve_labels(labels).items()
            if found.outcome is not None and name in drawn
        }

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """Ids of the runs to label now, in the order of the draw; none of a closed batch."""
        return () if self.closing is not None else self.draw.wanted(self.outcomes)

    @cached_property
    def disputed(self) -> int:
        """Number of these on which reviewers are tied, so that one more has to label them."""
        found = resolve_labels(read_labels(self.corpus))
        return sum(name in found for name in self.wanted)

    @cached_property
    def certificates(self) -> tuple[BatchCertificate, ...]:
        """What the labels say of each side; for a closed batch, those that closed it."""
        return self.draw.close(self.outcomes)

    @property
    def labels_used(self) -> int:
        """Labels that count so far: those of the first runs of each side's draw."""
        return sum(item.labels_used for item in self.certificates)

    @property
    def decided(self) -> int:
        """Runs that certificates of the batch decided without a label."""
        return 0 if self.closing is None else sum(self.closing.decisions.get(s, 0) for s in SIDES)

    @cached_property
    def overruled(self) -> int:
        """Labels of the draw that their reviewers replaced by what the judge says."""
        last = None if self.closing is None else self.closing.labels_sequence
        replaced = overruled(labels_up_to(self.corpus, last).labels)
        return sum(
            replaced.get(name) == int(draw.plan.side == "release")
            for draw, names in zip(self.draw.sides, self.draw.orders, strict=True)
            for name in names
        )

    def sentence(self) -> str:
        """Describe where the audit stands."""
        replaced = f" {self.overruled} labels of the draw were replaced by what the judge says."
        return self._standing() + (replaced if self.overruled else "")

    def _standing(self) -> str:
        runs = f"{' and '.join(self.record.batches)}: {len(self.runs)} runs"
        whose = "its" if len(self.record.batches) == 1 else "their"
        labels = f"{self.labels_used} label{'' if self.labels_used == 1 else 's'} of {whose} draw"
        if self.closing is None:
            settled = sum(name in self.outcomes for name in self.record.order)
            asked = f"{settled} of {settled + len(self.wanted)} runs of {whose} draw are settled"
            return (
                f"{runs} are provisional; {asked}{_third(self.disputed)} "
                f"(`certify review queue {self.corpus}`)."
            )
        if self.closing.state == "to_reviewers":
            return f"{runs} went to reviewers: {labels} certify no threshold."
        return f"{runs}, {self.decided} of them decided by a certificate of the batch on {labels}."

    def summary(self) -> AuditSummary:
        """Return what status, metadata and history show of the audit."""
        return AuditSummary(
            batch=self.record.batch,
            batches=self.record.batches,
            state=self.state,
            runs=len(self.runs),
            decided=self.decided,
            labels_used=self.labels_used,
            labels_wanted=self.wanted,
            overruled=self.overruled,
            draws=self.record.draws,
            delta=self.record.delta,
            certificates=tuple(item.to_dict() for item in self.certificates),
            promise=self.record.promise,
            sentence=self.sentence(),
        )


def _third(disputed: int) -> str:
    return f", {disputed} are disputed and need a third reviewer" if disputed else ""


@dataclass(frozen=True)
class AuditSummary:
    """An audit as it is shown."""

    batch: str
    batches: tuple[str, ...]  # whose runs they are, the last is `batch`
    state: str  # one of STATES
    runs: int  # provisional at first
    decided: int  # without a label
    labels_used: int
    labels_wanted: tuple[str, ...]  # ids, in the order of the draw
    overruled: int  # labels that their reviewers replaced by what the judge says
    draws: int
    delta: float
    certificates: tuple[Mapping[str, Any], ...]
    promise: str
    sentence: str


def batch_audits(corpus: Corpus) -> list[BatchAudit]:
    """Return the audits of all decided batches, the oldest first."""
    found = (BatchAudit.load(corpus, name) for name in batch_names(corpus))
    return [item for item in found if item is not None]


def closings_sha256(corpus: Corpus) -> list[str]:
    """Return the hashes of what came after the decisions of batches, the oldest batch first."""
    files = ("pooled.json", "closing.json")
    keys = [batch_key(corpus.name, name, file) for name in batch_names(corpus) for file in files]
    return [corpus.store.sha256(key) for key in keys if corpus.store.exists(key)]


def decisions_sha256(corpus: Corpus, batches: Sequence[str]) -> str:
    """Return the hash of the decisions of a batch, or of the list of those of several."""
    hashes = [decided(corpus, name).content.objects["decisions"] for name in batches]
    return hashes[0] if len(hashes) == 1 else sha256_bytes(canonical_json(hashes))


def frozen_batch(rows: pd.DataFrame) -> Batch:
    """Return the runs of a table of decisions as a batch."""
    return Batch.of(
        rows["trajectory_id"].tolist(), rows["task_id"].tolist(), rows["score"].to_numpy(np.float64)
    )


def read_draws(corpus: Corpus) -> list[DrawnSeed]:
    """Return the journal of draws, the oldest first."""
    return draws_journal(corpus).read()


def draws_journal(corpus: Corpus) -> Journal[DrawnSeed]:
    """Return the journal of the seeds that were drawn for the batches of a corpus."""
    # a journal that was put back from an older copy would count fewer draws
    return Journal(
        corpus.store,
        draws_key(corpus.name),
        lambda line: DrawnSeed(**{**line, "batches": tuple(line["batches"])}),
        _FORMAT,
        heads=heads_key(corpus.name),
    )


def _is_lost(corpus: Corpus, batch: str) -> bool:
    """Whether a batch was decided with an audit of its own that is gone."""
    pooled = corpus.store.exists(batch_key(corpus.name, batch, "pooled.json"))
    if pooled or draw_of(corpus, batch) is not None:
        return False
    return "audit" in decided(corpus, batch).content.objects


@remembered
def _verified(corpus: Corpus, batch: str) -> tuple[AuditRecord, SidesDraw]:
    """Return a stored audit, if it is of the batch as decided and in the journal of draws."""
    key = batch_key(corpus.name, batch, "audit.json")
    where = corpus.store.locate(key)
    try:
        record = AuditRecord.from_dict(corpus.store.read_json(key))
        rows = provisional_rows(corpus, record.batches)
        rows = rows[rows["trajectory_id"].isin(record.order)]
        draw = SidesDraw(record.plan, frozen_batch(rows), record.seed)
        order = tuple(name for names in draw.orders for name in names)
        same = (
            (record.corpus, record.batch, record.runs) == (corpus.name, batch, len(rows))
            and sides_sha256(record.plan, draw.batch) == record.batch_sha256
            and order == record.order
        )
    except (CertifyError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"{where} {_EDITED} ({error})") from None
    written = (record.batch_sha256, record.draws, record.seed, record.time, record.batches)
    if not same or written not in {
        (line.batch_sha256, line.draws, line.seed, line.time, line.batches)
        for line in read_draws(corpus)
        if line.batch == batch
    }:
        raise IntegrityError(f"{where} {_EDITED}")
    return record, draw


def _closing(corpus: Corpus, audit: AuditRecord, draw: SidesDraw) -> ClosingRecord | None:
    batch = audit.batch
    key = batch_key(corpus.name, batch, "closing.json")
    if not corpus.store.exists(key):
        return None
    try:
        values = dict(corpus.store.read_json(key))
        values["certificates"] = tuple(values["certificates"])
        record = ClosingRecord(**values)
        stored = {
            "audit.json": record.audit_sha256,
            "closed.parquet": record.closed_sha256,
        }
        same = record.schema == CLOSING_SCHEMA and all(
            corpus.store.sha256(batch_key(corpus.name, batch, name)) == sha256
            for name, sha256 in stored.items()
        )
        same = same and record.decisions_sha256 == decisions_sha256(corpus, audit.batches)
        again = draw.close(record.outcomes)
        state = "certified" if any(item.certified for item in again) else "to_reviewers"
        used = sum(item.labels_used for item in again)
        same = same and (record.state, record.labels_used) == (state, used)
        named = [(item["certified"], item["threshold"]) for item in record.certificates]
        same = same and named == [(item.certified, item.threshold) for item in again]
    except (KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise IntegrityError(
            f"{corpus.store.locate(key)} is not of the audit and the tables next to it; restore "
            "the folder of the batch from a backup."
        )
    return record
