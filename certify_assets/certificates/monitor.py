"""The monitor: what newly labelled tasks, taken in order, say about a certified threshold, valid at every task at once.

The statistics are those of :mod:`certify_assets.certificates.eprocess`; here tasks become a stream, and the stream an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.certificate import Certificate, significant
from certify_assets.certificates.eprocess import (
    TaskStream,
    alarm_process,
    certification_process,
    error_interval,
    shiryaev_roberts,
)
from certify_assets.certificates.inputs import Observations, observe, task_codes
from certify_assets.certificates.shown import shown
from certify_assets.errors import InputError

__all__ = [
    "DETECTORS",
    "ESTIMANDS",
    "RUN_LENGTH",
    "Monitoring",
    "monitor_certificate",
    "task_stream",
]

DETECTORS = ("e_process", "shiryaev_roberts")
ESTIMANDS = ("task", "trajectory")
#: a false alarm within T tasks then has probability at most T/10,000, by optional stopping
RUN_LENGTH = 10_000
#: exp of more is no float
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class Monitoring:
    """What a stream of labelled tasks says about a certificate.

    Attributes
    ----------
    alarm : bool
        Whether the chosen detector has ever raised one.
    e_value : float
        The e-process against "the error is at most α" at the last task; at most exp(700) is shown.
    tasks : int
        Tasks in the stream, with something covered or not.
    interval : tuple of float
        Confidence sequence for the error of the estimand at the last task; contains the realised error.
    detector : {"e_process", "shiryaev_roberts"}
        Which one `alarm` and `first_alarm_task` speak of.
    estimand : {"task", "trajectory"}
    alpha, delta : float
        Those of the certificate. Alarm, interval and anytime certification hold at 1 − δ each, not jointly.
    certificate_sha256 : str
    first_alarm_task : str or None
        Label of the task at which the chosen detector rose.
    first_alarm_at, certified_at : int or None
        Number of tasks after which it did, and after which an error of at most α was certified by these tasks alone.
    covered_tasks, covered_trajectories, errors, trajectories, unscored : int
    realized_error : float or None
    e_process, shiryaev_roberts : dict
        Of each detector: value, largest (so far), threshold, alarm, first_alarm_at.
    findings : tuple of dict
        Each {"code", "message"}.
    """

    alarm: bool
    e_value: float
    tasks: int
    interval: tuple[float, float]
    detector: str
    estimand: str
    alpha: float
    delta: float
    certificate_sha256: str
    first_alarm_task: str | None
    first_alarm_at: int | None
    certified_at: int | None
    covered_tasks: int
    covered_trajectories: int
    errors: int
    trajectories: int
    unscored: int
    realized_error: float | None
    e_process: dict[str, Any]
    shiryaev_roberts: dict[str, Any]
    findings: tuple[dict[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            **asdict(self),
            "interval": list(self.interval),
            "findings": [dict(finding) for finding in self.findings],
        }


def monitor_certificate(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    estimand: str = "task",
    max_task_size: int | None = None,
    detector: str = "e_process",
    run_length: float = RUN_LENGTH,
) -> Monitoring:
    """Follow a certified threshold over tasks that people labelled after it was issued.

    Parameters
    ----------
    certificate : Certificate
        Its side, threshold, α and δ are used.
    scores, outcomes, tasks
        The labelled rows in the order in which they came; tasks are taken in the order of their first rows, each with all its rows. They
        must be drawn as the certificate's were, all attempts of a task labelled: never the rows that were left to people.
    estimand : {"task", "trajectory"}
        "task": E[k_g/m_g]/E[n_g/m_g], every task weighing by the share of its attempts that is covered; needs no cap. "trajectory":
        E[k_g]/E[n_g], with a cap on the covered trajectories of a task.
    max_task_size : int, optional
        That cap; the certificate's where it declares one.
    detector : {"e_process", "shiryaev_roberts"}
        Which one is the alarm. The e-process rises falsely with probability at most δ over all time; Shiryaev–Roberts after at least
        `run_length` tasks on average, and sooner after a change.
    run_length : float
        Smallest mean number A of tasks to a false alarm of the Shiryaev–Roberts detector, above 1. Within T tasks one has probability at
        most T/A.

    Returns
    -------
    Monitoring

    Raises
    ------
    InputError
        If the table cannot be used, is the certificate's own, holds a task above the cap, or the certificate certifies nothing.
    """
    for name, value, allowed in (
        ("estimand", estimand, ESTIMANDS),
        ("detector", detector, DETECTORS),
    ):
        if value not in allowed:
            raise InputError(f"{name} is {shown(value)}; give one of {', '.join(allowed)}.")
    if not 1 < run_length < math.inf:
        raise InputError(
            f"run_length is {shown(run_length)}; give a finite number of tasks above 1."
        )
    observations = observe(scores, outcomes, tasks)
    if observations.fingerprint == certificate.inputs:
        raise InputError(
            "These are the rows that the certificate was issued on; monitor it on tasks that were labelled afterwards."
        )
    cap = _cap(certificate, max_task_size) if estimand == "trajectory" else None
    stream = task_stream(certificate, scores, outcomes, tasks, max_task_size=cap)
    alpha, delta = certificate.alpha, certificate.delta
    alarms = {
        "e_process": _summary(alarm_process(stream, alpha), 1 / delta),
        "shiryaev_roberts": _summary(shiryaev_roberts(stream, alpha), float(run_length)),
    }
    first = alarms[detector]["first_alarm_at"]
    return Monitoring(
        alarm=first is not None,
        e_value=alarms["e_process"]["value"],
        tasks=len(stream.labels),
        interval=error_interval(stream, delta),
        detector=detector,
        estimand=estimand,
        alpha=alpha,
        delta=delta,
        certificate_sha256=certificate.sha256,
        first_alarm_task=None if first is None else stream.labels[first - 1],
        first_alarm_at=first,
        certified_at=_first(certification_process(stream, alpha), 1 / delta),
        covered_tasks=int(np.count_nonzero(stream.covered)),
        covered_trajectories=int(stream.covered.sum()),
        errors=int(stream.errors.sum()),
        trajectories=observations.scored,
        unscored=observations.unscored,
        realized_error=None
        if stream.realized_error is None
        else significant(stream.realized_error),
        findings=_findings(certificate, observations, stream, estimand),
        **alarms,
    )


def task_stream(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    max_task_size: int | None = None,
) -> TaskStream:
    """Count what a certified threshold decides, and how much of it wrongly, task by task in the order of their first rows.

    Parameters
    ----------
    certificate : Certificate
        With a threshold.
    scores, outcomes, tasks
        As for :func:`monitor_certificate`, and already accepted by :func:`certify_assets.certificates.observe`.
    max_task_size : int, optional
        Cap on the covered trajectories of a task, which then is every task's scale.

    Returns
    -------
    TaskStream

    Raises
    ------
    InputError
        If the certificate has no threshold, or a task has more covered trajectories than the cap.
    """
    if certificate.threshold is None:
        raise InputError(
            "The certificate certifies nothing, so nothing is decided by it and there is nothing to monitor; give one that does."
        )
    labels, codes = task_codes(tasks)
    values, right = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    reject = certificate.side == "reject"
    decided = values <= certificate.threshold if reject else values >= certificate.threshold
    wrong = decided & (right == (1 if reject else 0))
    found, first = np.unique(codes, return_index=True)
    order = found[np.argsort(first, kind="stable")]
    covered, errors, sizes = (
        np.bincount(codes[rows], minlength=len(labels))[order].astype(np.int64)
        for rows in (decided, wrong, ~np.isnan(values))
    )
    names = tuple(labels[code] for code in order)
    if max_task_size is None:
        return TaskStream(covered, errors, np.maximum(sizes, 1).astype(np.float64), names)
    above = np.flatnonzero(covered > max_task_size)
    if above.size:
        place = int(above[0])
        raise InputError(
            f"Task {shown(names[place])} has {covered[place]} covered trajectories, above the cap {max_task_size}; "
            "declare a larger max_task_size before any label is seen, or use estimand task."
        )
    return TaskStream(covered, errors, np.full(covered.size, float(max_task_size)), names)


def _cap(certificate: Certificate, declared: int | None) -> int:
    cap = certificate.parameters["max_task_size"] if declared is None else declared
    if cap is None:
        raise InputError(
            "The trajectory estimand needs a cap on the covered trajectories of a task; give max_task_size, or estimand task."
        )
    if cap < 1:
        raise InputError(f"max_task_size is {shown(cap)}; give a whole number above zero.")
    return int(cap)


def _first(log_process: NDArray[np.float64], threshold: float) -> int | None:
    reached = log_process >= math.log(threshold)
    return int(np.argmax(reached)) + 1 if reached.any() else None


def _summary(log_process: NDArray[np.float64], threshold: float) -> dict[str, Any]:
    value, largest = (
        significant(math.exp(min(float(log), _LARGEST_LOG)))
        for log in (log_process[-1], log_process.max())
    )
    first = _first(log_process, threshold)
    return {
        "value": value,
        "largest": largest,
        "threshold": significant(threshold),
        "alarm": first is not None,
        "first_alarm_at": first,
    }


def _findings(
    certificate: Certificate, observations: Observations, stream: TaskStream, estimand: str
) -> tuple[dict[str, str], ...]:
    found = []
    if estimand != certificate.estimand:
        text = (
            f"The certificate speaks of the {certificate.estimand}-weighted error, the monitor of the {estimand}-weighted one: they differ where "
            "tasks of another size err more or less often"
        )
        remedy = (
            "; give estimand trajectory with a cap to watch the other."
            if estimand == "task"
            else "; give estimand task to watch the other."
        )
        found.append(("estimand_differs", text + remedy))
    elif certificate.procedure == "task_hoeffding":
        text = "The certificate weighs all covered tasks alike; the monitor weighs a task by the share of its attempts that is covered."
        found.append(("task_weights_differ", text))
    if observations.unscored:
        found.append(
            (
                "unscored_rows",
                f"{observations.unscored} of {observations.rows} rows have no score, so none is decided; left out.",
            )
        )
    empty = int(np.count_nonzero(stream.covered == 0))
    if empty:
        text = f"{empty} of {stream.covered.size} tasks have no row that the certificate decides; they are counted and contribute nothing."
        found.append(("nothing_covered", text))
    return tuple({"code": code, "message": message} for code, message in found)
