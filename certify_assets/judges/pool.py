"""The pool of the platform: scores and sizes of the tasks that do not certify the judge.

`pseudo_task` measures how unequal tasks are in size on the calibration rows and on the pool. The
rule is fixed: the pool is every task that is not among the calibration rows, scored by a judge that
did not train on it. Tasks whose scores would take longer than seconds are left out, and the
document says how many and why. No outcome of the pool is read, and the ledger records that scores
of TEST are used.

A pool is made with the scores of its judge, and certificates only read it. Their document contains
it, so that later deliveries do not change what they are recomputed with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.evidence import EVERY_TASK, Pool, observe_pool
from certify_assets.documents import Document
from certify_assets.errors import IntegrityError, StaleCertificateError

if TYPE_CHECKING:
    from pathlib import Path

    from certify_assets.certificates import Certificate
    from certify_assets.judges.stored import StoredJudge

#: entry of a certificate's provenance that names the document of its pool
PROVENANCE: Final = "pool_document_sha256"
_Scores = Mapping[str, tuple[float | None, ...]]
#: who scored the tasks of a part
BY_JUDGE: Final = "judge"
BY_FOLDS: Final = "folds"
_WORDS: Final = {BY_JUDGE: "", BY_FOLDS: ", out of fold"}


@dataclass(frozen=True)
class PoolPart:
    """Tasks of one origin, a split or deliveries, with the scores of their runs."""

    name: str
    #: `BY_JUDGE`, or `BY_FOLDS` of judges that never saw the task; empty where no task is taken
    scored_by: str
    #: the scores of every task's runs, ascending, unscored runs last
    scores: _Scores
    #: number of tasks without scores that could be used
    left_out: int = 0
    #: why they are left out, or why runs have no score
    reason: str = ""

    @property
    def runs(self) -> int:
        """Number of runs."""
        return sum(map(len, self.scores.values()))

    @property
    def words(self) -> str:
        """The numbers of tasks and runs, or what was left out."""
        name = self.name.upper()
        taken = f"{len(self.scores)} of {name} ({self.runs} runs{_WORDS.get(self.scored_by, '')})"
        lost = f"{self.left_out} of {name} left out: {self.reason.rstrip('.')}"
        return "; ".join([taken] * bool(self.scores) + [lost] * bool(self.left_out))


class StoredPool(Document):
    """A stored pool, with the origins of its tasks."""

    TITLE = "stored pool"
    SCHEMA = "certify_assets/pool/1"
    REFUSAL = IntegrityError

    corpus: str
    judge: str
    #: of the judge that scored
    adapter_sha256: str
    parts: tuple[PoolPart, ...]

    @property
    def pool(self) -> Pool | None:
        """The pool in the form that certificates take; None where no run has a score."""
        rows = [
            (task, np.nan if score is None else score)
            for part in self.parts
            for task, scores in part.scores.items()
            for score in scores
        ]
        if all(np.isnan(score) for _, score in rows):
            return None
        tasks, scores = zip(*rows, strict=True)
        return observe_pool(np.array(scores, np.float64), list(tasks), origin=EVERY_TASK)

    @property
    def sentence(self) -> str:
        """Say in one line which tasks the size ratio is measured on, and which are left out."""
        taken = [part for part in self.parts if part.scores]
        tasks, runs = sum(len(part.scores) for part in taken), sum(part.runs for part in taken)
        said = "; ".join(part.words for part in self.parts if part.words)
        if not tasks:
            why = said or "no other task"
            return f"The size ratio is measured on the certified runs alone: {why}."
        return (
            f"The size ratio is measured on the certified runs and on {runs} other runs of "
            f"{tasks} tasks, whose outcomes are not read: {said}."
        )

    @property
    def provenance(self) -> dict[str, str]:
        """The facts about a pool that certificates name besides its rows."""
        return {} if self.pool is None else {PROVENANCE: self.sha256}

    def without(self, tasks: set[str]) -> StoredPool:
        """Return the pool without tasks that certify now."""
        kept = [
            replace(
                part, scores={task: of for task, of in part.scores.items() if task not in tasks}
            )
            for part in self.parts
        ]
        return self.replace(parts=tuple(kept))

    @classmethod
    def is_file(cls, path: Path) -> bool:
        """Whether a file is a stored pool, not a score table."""
        return path.suffix == ".json" and cls.SCHEMA.encode() in path.read_bytes()


def rows_of(pool: StoredPool | None) -> Pool | None:
    """Return a pool in the form that certificates take."""
    return None if pool is None else pool.pool


def takes_pool(procedure: str) -> bool:
    """Whether certificates of a procedure are issued with a pool."""
    from certify_assets.certificates import PROCEDURES

    return PROCEDURES[procedure].calibrated


def pool_part(name: str, tasks: Sequence[str], scores: NDArray[np.float64], by: str) -> PoolPart:
    """Return the part of some runs, from the task and score of each."""
    found: dict[str, list[float | None]] = {}
    for row in np.lexsort((scores, np.asarray(tasks, dtype=object).astype(str))).tolist():
        score = None if np.isnan(scores[row]) else float(scores[row])
        found.setdefault(str(tasks[row]), []).append(score)
    return PoolPart(name, by, {task: tuple(of) for task, of in found.items()})


def stored_pool(judge: StoredJudge) -> StoredPool:
    """Return the pool that was stored with a judge's scores; refuse that of another judge."""
    document = judge.read("pool.json")
    if not document:
        raise StaleCertificateError(
            f"{judge} has no pool on {judge.corpus}; materialize judges/{judge}/scores again."
        )
    pool = StoredPool.from_dict(document)
    if pool.adapter_sha256 != judge.artifact.adapter_sha256:
        raise StaleCertificateError(
            f"the pool of {judge} on {judge.corpus} was scored by another judge than the stored "
            f"one; materialize judges/{judge}/scores again."
        )
    return pool


def document_of(certificates: Sequence[Certificate], pool: StoredPool | None) -> dict[str, Any]:
    """Return the document of certificates, with the pool by which they are recomputed."""
    document = {"certificates": [item.to_dict() for item in certificates]}
    named = pool is not None and any("pool" in item.inputs for item in certificates)
    return {**document, "pool": pool.to_dict()} if pool is not None and named else document


def pool_in(
    document: Mapping[str, Any], certificates: Sequence[Certificate], whose: str
) -> StoredPool | None:
    """Return the pool that certificates name, from their document; refuse any other."""
    named = {item.provenance.get(PROVENANCE) for item in certificates if "pool" in item.inputs}
    if not named:
        return None
    found = StoredPool.from_dict(document.get("pool"))
    if named != {*found.provenance.values()}:
        raise IntegrityError(
            f"the document of the certificates of {whose} holds a pool that they do not name; "
            "certify again."
        )
    return found


def load_pool(judge: StoredJudge, certificates: Sequence[Certificate]) -> StoredPool | None:
    """Return the pool that a judge's certificates name; None where they name none."""
    # another pool is another test, for which no δ was claimed: whoever loads them finds out
    document = judge.store.read_json(judge.key("certificates.json"))
    return pool_in(document, certificates, f"{judge} on {judge.corpus}")
