"""The history of the certificates of a corpus: what each certified, its realised error, alarms.

The realised error of a certificate is that of the runs that it decided, over the tasks that were
labelled whatever the judge said, every task weighing by the share of its runs that was decided. The
order is that of the journals, not of the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES
from certify_assets.operations.alarms import read_alarms
from certify_assets.operations.audit_sample import completed_at, drawn_decisions, with_labels
from certify_assets.operations.deployment_record import DeploymentRecord, read_deployments
from certify_assets.operations.labels import Label, read_labels
from certify_assets.operations.layout import history_key
from certify_assets.operations.recertification_record import RecertificationRecord, recertifications
from certify_assets.operations.spending import read_spending

if TYPE_CHECKING:
    import pandas as pd

HISTORY_SCHEMA: Final = "certify_assets/operation_history/1"


@dataclass(frozen=True)
class SideHistory:
    """One certificate: its figures, and its error on the drawn tasks that are labelled.

    Parameters
    ----------
    tasks, runs, errors : int
        Labelled tasks, and runs and errors among those that it decided.
    error, interval
        Realised error with its confidence sequence.
    alarm : dict or None
        Tasks (``at``) and time of the first alarm.
    """

    certificate_sha256: str
    side: str
    alpha: float
    delta: float
    coverage: float
    threshold: float | None
    tasks: int = 0
    runs: int = 0
    errors: int = 0
    error: float | None = None
    interval: tuple[float, float] = (0.0, 1.0)
    alarm: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any], sha256: str) -> SideHistory:
        """Take the figures of a certificate's document."""
        names = ("side", "alpha", "delta", "coverage", "threshold")
        return cls(sha256, *(document[name] for name in names))


@dataclass(frozen=True)
class HistoryStep:
    """One set of certificates.

    Parameters
    ----------
    deployed : tuple of int
        Numbers of its deployments.
    number : int
        Of the recertification; 0 for the certificates on CAL.
    """

    label: str
    judge: str
    time: str
    number: int
    deployed: tuple[int, ...] = ()
    sides: tuple[SideHistory, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return the step as a JSON object."""
        sides = [{**asdict(side), "interval": list(side.interval)} for side in self.sides]
        return {**asdict(self), "deployed": list(self.deployed), "sides": sides}


def write_history(corpus: Corpus) -> dict[str, Any]:
    """Gather the history, store it and return it."""
    document = operation_history(corpus)
    corpus.store.write_json(history_key(corpus.name), document)
    return document


def operation_history(corpus: Corpus) -> dict[str, Any]:
    """Return the history of a corpus.

    Returns
    -------
    dict
        ``steps``, one a set of certificates, with the fields of `HistoryStep`; ``spent``,
        ``promised``, ``joint``, ``alarms``.

    Raises
    ------
    InputError, IntegrityError
        If a journal, or the provenance of a batch, does not hold.
    """
    spending, alarms, labels = read_spending(corpus), read_alarms(corpus), read_labels(corpus)
    decided = with_labels(drawn_decisions(corpus), labels)
    first = {
        item.certificate_sha256: {"at": item.at, "time": item.time} for item in reversed(alarms)
    }
    steps = [
        replace(
            step,
            sides=tuple(
                replace(_realised(decided, labels, side), alarm=first.get(side.certificate_sha256))
                for side in step.sides
            ),
        )
        for step in _steps(corpus)
    ]
    names = ("judge", "side", "alpha", "at", "time", "source")
    return {
        "schema": HISTORY_SCHEMA,
        "corpus": corpus.name,
        "steps": [step.to_dict() for step in steps],
        "alarms": [{name: getattr(item, name) for name in names} for item in alarms],
        "first_delta": DELTA,
        "claims": [
            {"number": item.number, "delta": item.delta, "time": item.time}
            for item in spending.claims
        ],
        "spent": spending.spent,
        "promised": spending.promised,
        "schedule": "" if spending.schedule is None else spending.schedule.words(),
        "joint": spending.joint(DELTA),
    }


def _steps(corpus: Corpus) -> list[HistoryStep]:
    """Return every set of certificates once, in the order of use or, if never used, of issue."""
    made = {item.certificates_key: item for item in recertifications(corpus)}
    steps: dict[tuple[str, tuple[str, ...]], HistoryStep] = {}

    def add(step: HistoryStep) -> None:
        key = (step.label, tuple(side.certificate_sha256 for side in step.sides))
        known = steps.setdefault(key, step)
        steps[key] = replace(
            known, deployed=tuple(dict.fromkeys((*known.deployed, *step.deployed)))
        )

    waiting = dict(made)
    for deployment in read_deployments(corpus):
        used = made.get(deployment.certificates_key)
        waiting.pop(deployment.certificates_key, None)
        for key in [key for key in waiting if used and waiting[key].number < used.number]:
            add(_undeployed(corpus, waiting.pop(key)))
        add(_deployed(corpus, deployment, used))
    for record in waiting.values():
        add(_undeployed(corpus, record))
    return list(steps.values())


def _deployed(
    corpus: Corpus, deployment: DeploymentRecord, record: RecertificationRecord | None
) -> HistoryStep:
    documents = _documents(corpus, deployment.certificates_key)
    sides = [
        SideHistory.of(item, sha256)
        for sha256, item in documents.items()
        if sha256 in deployment.certificates
    ]
    return HistoryStep(
        f"recertification {record.number}" if record else f"{deployment.judge}, first",
        deployment.judge,
        record.time if record else deployment.time,
        record.number if record else 0,
        (deployment.number,),
        tuple(sides),
    )


def _undeployed(corpus: Corpus, record: RecertificationRecord) -> HistoryStep:
    """Return a recertification with the strictest budget of each side that certifies."""
    found: dict[str, SideHistory] = {}
    for sha256, item in _documents(corpus, record.certificates_key).items():
        if item["certified"] and item["procedure"] == PROCEDURES[0]:
            found.setdefault(item["side"], SideHistory.of(item, sha256))
    return HistoryStep(
        f"recertification {record.number}",
        record.judge,
        record.time,
        record.number,
        sides=tuple(found[side] for side in SIDES if side in found),
    )


def _documents(corpus: Corpus, key: str) -> dict[str, dict[str, Any]]:
    """Return the documents of certificates by their hash; none that were issued again since."""
    from certify_assets.certificates import Certificate

    if not corpus.store.exists(key):
        return {}
    items = corpus.store.read_json(key)["certificates"]
    return {Certificate.from_dict(item).sha256: item for item in items}


def _realised(frame: pd.DataFrame, labels: Iterable[Label], side: SideHistory) -> SideHistory:
    """Add the error over drawn tasks whose every decided run is labelled."""
    from certify_assets.certificates.monitor import TaskStream, error_interval

    mine = (
        frame["certificate_sha256"]
        .astype(str)
        .str.split(";")
        .map(lambda names: side.certificate_sha256 in names)
    )
    rows = frame[mine & (frame["drawn"] != "")]
    decided = rows[rows["decision"] == side.side]
    parts = {str(task): part for task, part in decided.groupby("task_id", sort=False)}
    runs = {task: [str(name) for name in part["trajectory_id"]] for task, part in parts.items()}
    complete = {task for task, part in parts.items() if part["outcome"].notna().all()}
    places = completed_at(labels, runs)
    names = sorted(complete & set(places), key=lambda task: (places[task], task))
    sizes = rows[rows["score"].notna()].groupby("task_id").size()
    wrong = decided["outcome"] == (1 if side.side == "reject" else 0)
    errors = wrong.groupby(decided["task_id"]).sum()
    stream = TaskStream(
        np.array([len(runs[task]) for task in names], dtype=np.int64),
        np.array([int(errors[task]) for task in names], dtype=np.int64),
        np.array([float(sizes[task]) for task in names]),
    )
    low, high = error_interval(stream, side.delta)
    return replace(
        side,
        tasks=len(names),
        runs=int(stream.covered.sum()),
        errors=int(stream.errors.sum()),
        error=stream.realized_error,
        interval=(low, high),
    )
