"""The platform's pool: scores and sizes of every task of a corpus that certifies nothing.

`pseudo_task` takes how unequal tasks are in size from the calibration rows and from these. The rule
is fixed: every task that is not among the calibration rows, scored by a judge that did not train on
it. Tasks of which such scores would take longer than seconds are left out, and the document says
how many and why. No outcome of the pool is read, and that scores of TEST went in is in the ledger.

A pool is stored in the document of its certificates, so that they are recomputed with it whatever
is delivered later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.pool import EVERY_TASK, Pool, observe_pool
from certify_assets.corpora.splits import SPLITS
from certify_assets.documents import Document
from certify_assets.errors import IntegrityError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.task_folds import score_unseen, why_no_folds
from certify_assets.work import Report, silent

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from certify_assets.certificates import Certificate

#: entry of a certificate's provenance that names the document of its pool
PROVENANCE: Final = "pool_document_sha256"
_Scores = Mapping[str, tuple[float | None, ...]]
#: who scored the tasks of a part
JUDGE: Final = "judge"
FOLDS: Final = "folds"
_WORDS: Final = {JUDGE: "", FOLDS: ", out of fold"}


@dataclass(frozen=True)
class PoolPart:
    """Tasks of one origin, a split or deliveries, with the scores of their runs."""

    name: str
    #: `JUDGE`, or `FOLDS` of judges that never saw the task; empty where no task is taken
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
        """Tasks and runs, or what is left out."""
        name = self.name.upper()
        taken = f"{len(self.scores)} of {name} ({self.runs} runs{_WORDS.get(self.scored_by, '')})"
        lost = f"{self.left_out} of {name} left out: {self.reason.rstrip('.')}"
        return "; ".join([taken] * bool(self.scores) + [lost] * bool(self.left_out))


class StoredPool(Document):
    """A pool with where its tasks come from, as it is stored."""

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
        """Say in one line from what the size ratio comes, and what is left out."""
        taken = [part for part in self.parts if part.scores]
        tasks, runs = sum(len(part.scores) for part in taken), sum(part.runs for part in taken)
        said = "; ".join(part.words for part in self.parts if part.words)
        if not tasks:
            return f"The size ratio is of the certified runs alone: {said or 'no other task'}."
        return (
            f"The size ratio is of the certified runs and of {runs} others of {tasks} tasks, whose "
            f"outcomes are not read: {said}."
        )

    @property
    def provenance(self) -> dict[str, str]:
        """What certificates with the pool name beyond its rows."""
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
        """Whether a file is a stored pool, and no score table."""
        return path.suffix == ".json" and cls.SCHEMA.encode() in path.read_bytes()


def rows_of(pool: StoredPool | None) -> Pool | None:
    """Return a pool in the form that certificates take."""
    return None if pool is None else pool.pool


def takes_pool(procedure: str) -> bool:
    """Whether certificates of a procedure are issued with a pool."""
    from certify_assets.certificates import PROCEDURES

    return PROCEDURES[procedure].calibrated


def gather_pool(judge: JudgedCorpus, *, report: Report = silent) -> StoredPool:
    """Gather the pool of a judge's certificates by the rule; nothing is stored but folds.

    Judges are trained and runs are scored here, so that no certificate does. The same judge, splits
    and runs give the same bytes, whatever the outcomes of the pool are.
    """
    certified, _, record = judge.calibration
    table = judge.scores[0][["split", "task_id", "score"]]
    table = table[~table["task_id"].isin(certified["task_id"])]
    parts = [_part(judge, split, table[table["split"] == split], report) for split in SPLITS]
    return StoredPool(
        corpus=judge.corpus.name,
        judge=judge.name,
        adapter_sha256=record.adapter_sha256,
        parts=tuple(parts),
    )


def _part(judge: JudgedCorpus, split: str, scored: pd.DataFrame, report: Report) -> PoolPart:
    """Return the tasks of a split, scored by the judge where it was not trained on them."""
    spec, tasks = judge.spec, len(judge.corpus.manifest.tasks[split])
    trained, reason = split in spec.training_splits, ""
    if trained:
        if why_no_folds(judge):
            reason = "the judge was trained on them, and training it without some takes long"
    elif spec.needs_other_corpora and split in ("sft", "rl"):
        reason = "runs of other corpora that the judge was trained on may be of them"
    elif split == "sft":
        reason = "the judge has not scored them, which takes longer than seconds or costs money"
    if reason and tasks:
        return PoolPart(split, "", {}, tasks, reason)
    if trained:
        runs = judge.corpus.split(split).assign(outcome=None)
        found = score_unseen(judge, runs, report=report)
        part = pool_part(split, runs["task_id"].tolist(), found.for_pool(), FOLDS)
        return replace(part, reason=found.reason)
    scores = scored["score"].to_numpy(np.float64)
    return pool_part(split, scored["task_id"].tolist(), scores, JUDGE if len(scored) else "")


def pool_part(name: str, tasks: Sequence[str], scores: NDArray[np.float64], by: str) -> PoolPart:
    """Return the part of some runs, from the task and score of each."""
    found: dict[str, list[float | None]] = {}
    for row in np.lexsort((scores, np.asarray(tasks, dtype=object).astype(str))).tolist():
        score = None if np.isnan(scores[row]) else float(scores[row])
        found.setdefault(str(tasks[row]), []).append(score)
    return PoolPart(name, by, {task: tuple(of) for task, of in found.items()})


def document_of(certificates: Sequence[Certificate], pool: StoredPool | None) -> dict[str, Any]:
    """Return the document of certificates, with the pool by which they are recomputed."""
    document = {"certificates": [item.to_dict() for item in certificates]}
    named = pool is not None and any("pool" in item.inputs for item in certificates)
    return {**document, "pool": pool.to_dict()} if pool is not None and named else document


def pool_in(
    document: Mapping[str, Any], certificates: Sequence[Certificate], whose: str
) -> StoredPool | None:
    """Return the pool that certificates name, from their document; refuse another one."""
    named = {item.provenance.get(PROVENANCE) for item in certificates if "pool" in item.inputs}
    if not named:
        return None
    found = StoredPool.from_dict(document.get("pool"))
    if named != {*found.provenance.values()}:
        raise IntegrityError(
            f"the document of the certificates of {whose} holds another pool than the one that "
            "they name; certify again."
        )
    return found


def load_pool(judge: JudgedCorpus, certificates: Sequence[Certificate]) -> StoredPool | None:
    """Return the pool that a judge's certificates name; None where they name none."""
    # another pool is another test, for which no δ was claimed: whoever loads them finds out
    document = judge.store.read_json(judge.key("certificates.json"))
    return pool_in(document, certificates, f"{judge} on {judge.corpus}")
