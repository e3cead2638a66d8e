"""The audit of provisional runs: those of one batch or of several, frozen, and their draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from certify_assets.certificates.batch import Batch, BatchPlan
from certify_assets.certificates.batch_draw import BatchCertificate, BatchDraw
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document, JsonObject
from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.specs import SIDES
from certify_assets.operations.batches import (
    BatchRecord,
    ClosedBatch,
    DrawnBatch,
    batch_names,
    closing_of,
    decided,
    decisions_sha256,
    draw_of,
    open_draws,
)
from certify_assets.operations.decisions import PROVISIONAL, provisional_rows
from certify_assets.operations.labels import (
    Label,
    labels_head,
    overruled,
    read_labels,
    resolve_labels,
)
from certify_assets.storage.store import Store
from certify_assets.words import WORDS, number_of

if TYPE_CHECKING:
    import pandas as pd


#: why the labels that are wanted may become more
GROWS: Final = "That is the best case: errors of the judge, or a wider set, need more."
#: states of a batch with provisional runs
STATES: Final = ("provisional", "certified", "to_reviewers")
# that a process keeps open: the next label of one does not read its tables again
_MOST_DRAWS = 16


class FrozenDraw(Document):
    """Everything of a draw but its seed, which comes later, and its runs.

    Parameters
    ----------
    plan : BatchPlan
    order : tuple of str
        Ids of the drawn runs, in the order in which they are labelled if none is wrong.
    """

    SCHEMA = "certify_assets/frozen_draw/3"
    TITLE = "draw of a batch"

    plan: BatchPlan
    order: tuple[str, ...]


def promise_of(plan: BatchPlan, batches: int) -> str:
    """Return the promise that a draw makes, for one batch or for several together."""
    budgets = " and ".join(f"{100 * item.alpha:g} % ({WORDS[item.side]})" for item in plan.sides)
    where = f"these {batches:,} batches together" if batches > 1 else "this batch"
    return (
        f"batch certificate: of the runs of {where} within a certified threshold, the judge is "
        f"wrong on at most {budgets}. This holds for any agents and tasks, with "
        f"{100 * (1 - plan.delta):.4g} % confidence over the draw. Runs that were labelled and "
        "corrected count too."
    )


@dataclass(frozen=True, eq=False)
class BatchAudit:
    """The audit of a batch, with the labels that there are."""

    corpus: Corpus
    record: DrawnBatch
    draw: BatchDraw
    closing: ClosedBatch | None

    @classmethod
    def load(cls, corpus: Corpus, batch: str) -> BatchAudit | None:
        """Open the draw that has the name of a batch.

        None if no run of the batch is provisional, if its runs still wait for a draw, or if the
        draw has the name of another batch (`batches.draw_of`).
        """
        if draw_of(corpus, batch) != batch:
            return None
        record, draw = _opened_draw(corpus, batch)
        found = closing_of(corpus, batch)
        if found is not None:
            # what it decided is a table, which is not read here
            corpus.store.objects.require(found.content.objects["closed"])
        return cls(corpus, record, draw, found and found.content)

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return "provisional" if self.closing is None else self.closing.state

    @property
    def order(self) -> tuple[str, ...]:
        """Ids of the drawn runs, in the order in which they are labelled if none is wrong."""
        return self.draw.order

    @property
    def promise(self) -> str:
        """Which of the two promises is made, and of what."""
        return promise_of(self.draw.plan, len(self.record.batches))

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the provisional runs that are drawn from, decided by now or not."""
        return self.draw.batch.trajectories

    @cached_property
    def _labels(self) -> list[Label]:
        """Labels so far; of a closed batch those that closed it."""
        last = None if self.closing is None else self.closing.labels_sequence
        return read_labels(self.corpus, last)

    @cached_property
    def outcomes(self) -> Mapping[str, int]:
        """Outcomes of drawn runs, without those that are tied; of a closed batch as stored."""
        if self.closing is not None:
            return self.closing.outcomes
        return {
            name: found.outcome
            for name, found in resolve_labels(self._labels).items()
            if found.outcome is not None and name in self.draw.places
        }

    @cached_property
    def tied(self) -> frozenset[str]:
        """Drawn runs whose reviewers are tied; of a closed batch by the labels that closed it."""
        resolved = resolve_labels(self._labels)
        return frozenset(
            name for name in self.draw.places.keys() & resolved if resolved[name].outcome is None
        )

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """Ids of the runs to label now, in the order of the draw; none of a closed batch."""
        return () if self.closing is not None else self.draw.wanted(self.outcomes, self.tied)

    @property
    def labelled(self) -> int:
        """Drawn runs that have a label, tied ones left out."""
        return sum(name in self.outcomes for name in self.order)

    @cached_property
    def certificates(self) -> tuple[BatchCertificate, ...]:
        """What the labels say of each side."""
        return self.draw.close(self.outcomes, self.tied)

    @property
    def labels_used(self) -> int:
        """Labels that count so far."""
        return sum(item.labels_used for item in self.certificates)

    @property
    def decided(self) -> int:
        """Runs that certificates of the batch decided without a label."""
        return 0 if self.closing is None else sum(self.closing.decisions.get(s, 0) for s in SIDES)

    @cached_property
    def overruled(self) -> int:
        """Number of labels that reviewers changed to the judge's decision."""
        replaced = overruled(self._labels)
        return sum(
            replaced.get(name) == 1 - side.wrong for side in self.draw.sides for name in side.names
        )

    @cached_property
    def sentence(self) -> str:
        """The state of the audit, as a sentence."""
        if not self.overruled:
            return self._standing()
        return (
            f"{self._standing()} Reviewers changed {number_of(self.overruled, 'label')} of the "
            "draw to the judge's decision."
        )

    def _standing(self) -> str:
        runs = f"{' and '.join(self.record.batches)}: {len(self.runs):,} runs"
        whose = "its" if len(self.record.batches) == 1 else "their"
        labels = number_of(self.labelled, "label")
        if self.closing is None:
            tied = len(self.tied.intersection(self.wanted))
            third = f"; a third reviewer settles {number_of(tied, 'tied run')}" if tied else ""
            return (
                f"{runs} are provisional; {whose} draw has {labels}, and reviewers are asked for "
                f"{len(self.wanted):,} more{third} (`certify review queue {self.corpus}`). {GROWS}"
            )
        labels = f"{labels} of {whose} draw"
        if self.state == "to_reviewers":
            return f"{runs} went to reviewers: {labels} certify no threshold."
        return f"{runs}; a certificate of the batch on {labels} decides {self.decided:,} of them."

    def to_dict(self) -> JsonObject:
        """Return what status and metadata show of the audit."""
        names = ("state", "decided", "labels_used", "overruled", "promise", "sentence")
        return {
            **{name: getattr(self, name) for name in names},
            "labels": self.labelled,
            "batch": self.record.batch,
            "batches": self.record.batches,
            "runs": len(self.runs),
            "labels_wanted": self.wanted,
            "draws": self.record.draws,
            "delta": self.draw.plan.delta,
            "certificates": [item.to_dict() for item in self.certificates],
        }


def batch_audits(corpus: Corpus) -> tuple[list[BatchAudit], dict[str, str]]:
    """Return the audits of all batches, the oldest first, and why others cannot be read, by batch.

    Nothing of such a batch is decided, and nothing else depends on it.
    """
    audits, faults = list[BatchAudit](), dict[str, str]()
    for name in batch_names(corpus):
        try:
            audits += filter(None, [BatchAudit.load(corpus, name)])
        except CertifyError as error:
            faults[name] = str(error)
    return audits, faults


def audits_version(corpus: Corpus) -> str:
    """Return the version of the audits of all batches."""
    audits, _ = batch_audits(corpus)
    return sha256_bytes(canonical_json([item.to_dict() for item in audits]))


def frozen_batch(rows: pd.DataFrame) -> Batch:
    """Return the runs of a table of decisions as a batch."""
    return Batch.of(
        rows["trajectory_id"].tolist(), rows["task_id"].tolist(), rows["score"].to_numpy(np.float64)
    )


def opened_draw(corpus: Corpus, batch: str) -> BatchDraw:
    """Return the last draw that has the name of a batch."""
    return _opened_draw(corpus, batch)[1]


def _opened_draw(corpus: Corpus, batch: str) -> tuple[DrawnBatch, BatchDraw]:
    drawn = corpus.last(DrawnBatch, batch)
    assert drawn is not None
    about = drawn.content
    objects = about.objects["audit"], *(decisions_sha256(corpus, name) for name in about.batches)
    store = Store(corpus.store.root)
    for name in objects:
        # one that is gone or was altered is noticed also where the draw is known
        store.objects.require(name)
    return about, _drawn(store, batch, objects, about.seed)


@lru_cache(maxsize=_MOST_DRAWS)
def _drawn(store: Store, batch: str, objects: tuple[str, ...], seed: int) -> BatchDraw:
    """Return a draw by the hashes of what it is of, which never change."""
    import pandas as pd

    audit = FrozenDraw.from_dict(store.objects.get_json(objects[0]))
    rows = pd.concat(map(store.objects.get_table, objects[1:]), ignore_index=True)
    drawn = (rows["decision"] == PROVISIONAL) & rows["trajectory_id"].isin(audit.order)
    draw = BatchDraw(audit.plan, frozen_batch(rows[drawn]), seed)
    if draw.order != audit.order:
        # it was fixed before any label, and a certificate counts labels in this order
        raise IntegrityError(
            f"the draw of batch {batch} was changed after it was stored. Restore the data root "
            "from a backup."
        )
    return draw


def close_settled(corpus: Corpus) -> None:
    """Close the provisional batches whose labels settle them."""
    # a draw that is closed is not opened again
    for name in open_draws(corpus):
        # who asks for an audit that was edited gets the sentence; others do not depend on it
        with suppress(CertifyError):
            audit = BatchAudit.load(corpus, name)
            if audit is not None and not audit.wanted:
                _close(audit)


def _close(audit: BatchAudit) -> None:
    corpus, rows = audit.corpus, settled_rows(audit)
    certified = any(item.certified for item in audit.certificates)
    closing = ClosedBatch(
        batch=audit.record.batch,
        state="certified" if certified else "to_reviewers",
        labels_sequence=labels_head(corpus).sequence,
        labels_used=audit.labels_used,
        outcomes=audit.outcomes,
        certificates=tuple(item.to_dict() for item in audit.certificates),
        decisions=dict(Counter(rows["decision"].tolist())),
        reasons=dict(Counter(rows["reason"].tolist())),
        objects={"closed": corpus.store.objects.put_table(rows)},
    )
    corpus.append(closing)


def settled_rows(audit: BatchAudit) -> pd.DataFrame:
    """Return what becomes of every provisional run: a label counts more than a certificate."""
    rows = provisional_rows(audit.corpus, audit.record.batches)
    rows = rows[rows["trajectory_id"].isin(audit.runs)]
    decisions = np.full(len(rows), "human", dtype=object)
    reasons = np.full(len(rows), "batch_not_certified", dtype=object)
    for side, certificate in zip(audit.draw.sides, audit.certificates, strict=True):
        inside = rows["trajectory_id"].isin(side.inside(certificate.threshold)).to_numpy(bool)
        decisions[inside], reasons[inside] = certificate.side, "batch_certificate"
    labelled = rows["trajectory_id"].isin(list(audit.outcomes)).to_numpy(bool)
    decisions[labelled], reasons[labelled] = "human", "batch_draw"
    asked = np.where(decisions == "human", "undecided", "").astype(object)
    asked[labelled] = "batch_draw"
    drawn = (rows["asked"] == "audit_sample").to_numpy(bool)
    asked[drawn] = "audit_sample"
    return rows[["trajectory_id"]].assign(decision=decisions, reason=reasons, asked=asked)


def standing_record(corpus: Corpus, batch: str) -> BatchRecord:
    """Return how a batch was decided, with what its draw promises by now."""
    record, draw = decided(corpus, batch).content, draw_of(corpus, batch)
    if draw is None:
        return record
    audit = BatchAudit.load(corpus, draw) if draw else None
    promises = [text for text in record.promises if not text.startswith("batch certificate")]
    promises += [] if audit is None else [audit.promise]
    findings = tuple(item for item in record.findings if item["code"] != "waits_for_draw")
    return record.model_copy(update={"findings": findings, "promises": tuple(promises)})
