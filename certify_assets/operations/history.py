"""What became of the certificates of a corpus: every set of them in order, what it certified, how often it was wrong, which raised an alarm, what was spent.

The realised error of a certificate is that of the runs that it decided, over the tasks that people read whatever the judge said, every task weighing by
the share of its runs that was decided. The order is that of the journals, not of the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES
from certify_assets.operations.alarms import read_alarms
from certify_assets.operations.audit_sample import completed_at, drawn_decisions, with_labels
from certify_assets.operations.deployment_record import Deployment, read_deployments
from certify_assets.operations.journal import Label, read_labels
from certify_assets.operations.recertified import recertifications
from certify_assets.operations.spending import read_spending
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HISTORY_SCHEMA", "history_key", "operation_history", "write_history"]

HISTORY_SCHEMA = "certify_assets/operation_history/1"


def history_key(corpus: str, name: str = "history.json") -> str:
    """Return where the history of a corpus is stored."""
    return f"operations/{corpus}/{name}"


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
        ``steps``, one a set of certificates: ``label``, ``judge``, ``time``, ``deployed`` (numbers), ``number`` (of the recertification, 0 for a judge's
        first), ``sides`` (of each that certifies: α, δ, coverage, and of what it decided tasks, runs, errors, error, interval, alarm); ``spent``,
        ``promised``, ``joint``, ``alarms``.

    Raises
    ------
    InputError, IntegrityError
        If a journal, or the provenance of a batch, does not hold.
    """
    spending, alarms = read_spending(corpus), read_alarms(corpus)
    labels = read_labels(corpus)
    decided = with_labels(drawn_decisions(corpus), labels)
    raised = {
        item.certificate_sha256: {"at": item.at, "time": item.time} for item in reversed(alarms)
    }
    steps = _steps(corpus)
    for step in steps:
        for side in step["sides"]:
            side |= _realised(
                decided, labels, side["certificate_sha256"], side["side"], side["delta"]
            )
            side["alarm"] = raised.get(side["certificate_sha256"])
    return {
        "schema": HISTORY_SCHEMA,
        "corpus": corpus.name,
        "steps": steps,
        "alarms": [
            {
                "judge": item.judge,
                "side": item.side,
                "alpha": item.alpha,
                "at": item.at,
                "time": item.time,
                "source": item.source,
            }
            for item in alarms
        ],
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


def _steps(corpus: Corpus) -> list[dict[str, Any]]:
    """Every set of certificates once, deployed or not, in the order in which they came into use or, where they never did, were made."""
    made = {str(item["certificates_key"]): item for item in recertifications(corpus)}
    steps: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
    waiting = dict(made)
    for deployment in read_deployments(corpus):
        before = [
            key
            for key in waiting
            if key != deployment.certificates_key
            and _earlier(waiting[key], made.get(deployment.certificates_key))
        ]
        for key in before:
            _add(steps, _undeployed(corpus.store, waiting.pop(key)))
        waiting.pop(deployment.certificates_key, None)
        _add(steps, _deployed(corpus.store, deployment, made.get(deployment.certificates_key)))
    for document in waiting.values():
        _add(steps, _undeployed(corpus.store, document))
    return list(steps.values())


def _earlier(document: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    return other is not None and int(document["number"]) < int(other["number"])


def _add(steps: dict[tuple[str, tuple[str, ...]], dict[str, Any]], step: dict[str, Any]) -> None:
    key = (step["label"], tuple(side["certificate_sha256"] for side in step["sides"]))
    steps.setdefault(key, step)["deployed"] += [
        number for number in step["deployed"] if number not in steps[key]["deployed"]
    ]


def _deployed(
    store: Store, deployment: Deployment, recertified: Mapping[str, Any] | None
) -> dict[str, Any]:
    number = 0 if recertified is None else int(recertified["number"])
    documents = _documents(store, deployment.certificates_key)
    names = set(deployment.certificates)
    return {
        "label": f"recertification {number}" if number else f"{deployment.judge}, first",
        "judge": deployment.judge,
        "time": deployment.time if recertified is None else recertified["time"],
        "number": number,
        "deployed": [deployment.number],
        "sides": [_side(item, sha256) for sha256, item in documents.items() if sha256 in names],
    }


def _undeployed(store: Store, document: Mapping[str, Any]) -> dict[str, Any]:
    """A recertification that decides nothing: of each side the strictest budget that certifies."""
    found: dict[str, dict[str, Any]] = {}
    for sha256, item in _documents(store, document["certificates_key"]).items():
        if item["certified"] and item["procedure"] == PROCEDURES[0]:
            found.setdefault(item["side"], _side(item, sha256))
    return {
        "label": f"recertification {document['number']}",
        "judge": document["judge"],
        "time": document["time"],
        "number": int(document["number"]),
        "deployed": [],
        "sides": [found[side] for side in SIDES if side in found],
    }


def _documents(store: Store, key: str) -> dict[str, dict[str, Any]]:
    """Return certificates as documents by their hash; those of a judge that was certified anew since are no longer there."""
    from certify_assets.certificates import Certificate

    if not store.exists(key):
        return {}
    return {
        Certificate.from_dict(item).sha256: item for item in store.read_json(key)["certificates"]
    }


def _side(item: Mapping[str, Any], sha256: str) -> dict[str, Any]:
    return {
        "certificate_sha256": sha256,
        **{name: item[name] for name in ("side", "alpha", "delta", "coverage", "threshold")},
    }


def _realised(
    frame: pd.DataFrame, labels: Iterable[Label], sha256: str, side: str, delta: float
) -> dict[str, Any]:
    """Return how often a certificate was wrong on what it decided, over drawn tasks whose every decided run is labelled."""
    from certify_assets.certificates.monitor import TaskStream, error_interval

    rows = frame[
        frame["certificate_sha256"].astype(str).str.split(";").map(lambda names: sha256 in names)
        & (frame["drawn"] != "")
    ]
    mine = rows[rows["decision"] == side]
    runs = {
        str(task): [str(name) for name in part["trajectory_id"]]
        for task, part in mine.groupby("task_id", sort=False)
    }
    known = {
        task for task, part in mine.groupby("task_id", sort=False) if part["outcome"].notna().all()
    }
    order = sorted(
        (place, task) for task, place in completed_at(labels, runs).items() if task in known
    )
    sizes = rows[rows["score"].notna()].groupby("task_id").size()
    wrong = mine["outcome"] == (1 if side == "reject" else 0)
    errors = wrong.groupby(mine["task_id"]).sum()
    names = [task for _, task in order]
    stream = TaskStream(
        np.array([len(runs[task]) for task in names], dtype=np.int64),
        np.array([int(errors[task]) for task in names], dtype=np.int64),
        np.array([float(sizes[task]) for task in names]),
    )
    low, high = error_interval(stream, delta)
    return {
        "tasks": len(names),
        "runs": int(stream.covered.sum()),
        "errors": int(stream.errors.sum()),
        "error": stream.realized_error,
        "interval": [low, high],
    }
