"""The monitor: tests of a certified threshold on newly labelled tasks, valid after every task.

With n_g covered trajectories and k_g errors in task g, and s_g its scored trajectories, let
x_g(c) = (k_g − c·n_g)/s_g in [−c, 1−c]. The error is at most c exactly when E[x_g(c)] ≤ 0. For
every share 0 < u < 1 of the largest bet,

    W↑_t(c) = ∏ (1 + (u/c)·x_g(c))

is a test martingale where the error is c, and a supermartingale where it is less.

    W↓_t(c) = ∏ (1 − (u/(1−c))·x_g(c))

is the same where the error is c or more. Mixtures over fixed u keep this property. By Ville's
inequality each ever exceeds 1/δ with probability at most δ. The alarm is W↑(α), restarted at every
task under weights that sum to one: a long good past does not hide a change. Certification is W↓(α).
The interval is every c that neither W↑(c) nor W↓(c) excludes at 2/δ.

References
----------
Ville (1939), Étude critique de la notion de collectif.
Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting.
Shin, Ramdas and Rinaldo (2024), E-detectors: a nonparametric framework for sequential change
detection.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from certify_assets.arrays import Floats, Integers, Names
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.counts import covers
from certify_assets.certificates.inputs import KnownTasks, known_tasks, observe, task_codes
from certify_assets.certificates.verification import settings_of
from certify_assets.errors import InputError
from certify_assets.files import significant

SENTENCES = {
    "known_tasks": "{known.sentence}",
    "estimand_differs": "The certificate speaks of the {estimand}-weighted error, the monitor of "
    "the task-weighted one. They differ where tasks of another size err more or less often.",
    "unscored_rows": "{unscored} of {rows} rows have no score, so none is decided; left out.",
    "nothing_covered": "{empty} of {tasks} tasks have no row that the certificate decides; they "
    "are counted and contribute nothing.",
}
#: exp of more is no float
_LARGEST_LOG = 700.0
_POINTS = 60
_BISECTIONS = 30
# a bet for an error above c is small (the excess over 1 − c), one for an error below is a share of
# c itself: hence the two spacings
_UPWARD: Floats = np.geomspace(0.0025, 0.95, 9)
_DOWNWARD: Floats = np.array([0.05, 0.15, 0.3, 0.5, 0.7, 0.9, 0.99])


@dataclass(frozen=True, eq=False)
class TaskStream:
    """Tasks in the order of their first labelled rows.

    Attributes
    ----------
    covered, errors : int64 arrays, shape (tasks,)
        n_g and k_g: rows that the certified threshold decides, and rows that it decides wrongly.
    scale : float64 array, shape (tasks,)
        s_g ≥ n_g: scored trajectories of the task; at least 1.
    labels : tuple of str
    """

    covered: Integers
    errors: Integers
    scale: Floats
    labels: tuple[str, ...] = ()

    @property
    def realized_error(self) -> float | None:
        """Σ k_g/s_g over Σ n_g/s_g; None when nothing is covered."""
        weight = float((self.covered / self.scale).sum())
        return float((self.errors / self.scale).sum()) / weight if weight else None

    def head(self, length: int) -> TaskStream:
        """Return the first tasks only."""
        return TaskStream(self.covered[:length], self.errors[:length], self.scale[:length])

    def excess(self, level: float) -> Floats:
        """Return x_g(c) = (k_g − c·n_g)/s_g, from −c to 1 − c; 0 where nothing is covered."""
        return (self.errors - level * self.covered) / self.scale


def alarm_process(stream: TaskStream, alpha: float) -> Floats:
    """Logarithm of the e-process against "the error is at most α", after each task."""
    # Half of the capital is bet from the first task on, and 1/(2j(j−1)) of it from task j on; what
    # is not yet bet is kept.
    places = np.arange(1, stream.covered.size + 1, dtype=np.float64)
    starts = np.log(0.5 / np.maximum(places * (places - 1), 1.0))
    growth = np.log1p(np.outer(_UPWARD / alpha, stream.excess(alpha)))
    capital = np.cumsum(growth, axis=1)
    started = _mixed(capital + np.logaddexp.accumulate(starts - (capital - growth), axis=1))
    return np.logaddexp(started, np.log(0.5 / places))


def certification_process(stream: TaskStream, alpha: float) -> Floats:
    """Logarithm of the e-process against "the error is at least α", after each task."""
    growth = np.log1p(np.outer(-_DOWNWARD / (1 - alpha), stream.excess(alpha)))
    return _mixed(np.cumsum(growth, axis=1))


def _mixed(log_capital: Floats) -> Floats:
    """Logarithm of the mean capital over the bets."""
    return np.logaddexp.reduce(log_capital, axis=0) - math.log(len(log_capital))


def error_interval(stream: TaskStream, delta: float) -> tuple[float, float]:
    """Confidence sequence for the error, at the last task."""
    # W↑(c) falls and W↓(c) rises in c, whatever the data, so each end is found by bisection
    point = stream.realized_error
    if point is None:
        return 0.0, 1.0
    shares = np.stack([stream.errors / stream.scale, stream.covered / stream.scale])
    kinds, numbers = np.unique(shares[:, stream.covered > 0], axis=1, return_counts=True)

    def end(outer: float, share: Floats, whole: float) -> float:
        """Return the end of the interval on the side of `outer`, with bets scaled by c."""
        inner = point
        for _ in range(_BISECTIONS if outer != point else 0):
            middle = (outer + inner) / 2
            bets = share / (middle - whole)
            growth = np.log1p(np.outer(bets, kinds[0] - middle * kinds[1]))
            rejected = float(_mixed(growth @ numbers)) >= math.log(2 / delta)
            outer, inner = (middle, inner) if rejected else (outer, middle)
        return significant(outer)

    return end(0.0, _UPWARD, 0.0), end(1.0, _DOWNWARD, 1.0)


@dataclass(frozen=True)
class DetectorState:
    """The e-process at the last task; ``largest`` is over all tasks so far."""

    value: float
    largest: float
    threshold: float
    alarm: bool
    first_alarm_at: int | None

    @classmethod
    def of(cls, log_process: Floats, threshold: float) -> DetectorState:
        """Summarise the logarithm of a process and its threshold."""
        logs = (float(log_process[-1]), float(log_process.max()))
        value, largest = (significant(math.exp(min(log, _LARGEST_LOG))) for log in logs)
        first = _first(log_process, threshold)
        return cls(value, largest, significant(threshold), first is not None, first)


@dataclass(frozen=True)
class Monitoring:
    """The monitor's result for a certificate and a stream of labelled tasks.

    Attributes
    ----------
    alarm : bool
        Whether the e-process has reached 1/δ at any task.
    e_value : float
        The e-process against "the error is at most α" at the last task; at most exp(700) is shown.
    tasks : int
        Tasks in the stream, with something covered or not.
    known_tasks : int
        Tasks of the table that the certificate was issued on, which are left out.
    interval : tuple of float
        Confidence sequence for the error at the last task; contains the realised error.
    detector : {"e_process"}
    alpha, delta : float
        Those of the certificate. Alarm, interval and anytime certification hold at 1 − δ each, not
        jointly.
    certificate_sha256 : str
    first_alarm_task : str or None
        Label of the task at which the alarm was raised.
    first_alarm_at, certified_at : int or None
        Number of tasks after which the alarm was raised, and after which these tasks alone
        certified an error of at most α.
    covered_tasks, covered_trajectories, errors, trajectories, unscored : int
    realized_error : float or None
    e_process : DetectorState
    findings : tuple of dict
        Each {"code", "message"}.
    """

    alarm: bool
    e_value: float
    tasks: int
    known_tasks: int
    interval: tuple[float, float]
    detector: str
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
    e_process: DetectorState
    findings: tuple[dict[str, str], ...]

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return asdict(self) | {"interval": list(self.interval), "findings": list(self.findings)}


def monitor_certificate(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
) -> Monitoring:
    """Follow a certified threshold over tasks that reviewers labelled after it was issued.

    Parameters
    ----------
    certificate : Certificate
        Its side, threshold, α and δ are used. Where α is kept on average, the alarm is about the
        cap, 2α.
    scores, outcomes, tasks
        The labelled rows in the order in which they came. Tasks are taken in the order of their
        first rows, each with all its rows. They must be drawn as the certificate's tasks were, with
        all attempts of a task labelled. Never give only the rows that were left to review.

    Returns
    -------
    Monitoring

    Raises
    ------
    InputError
        If the table cannot be used or has no new task, or the certificate certifies nothing.

    Notes
    -----
    The alarm is false with probability at most δ over all time. The error followed is
    E[k_g/m_g]/E[n_g/m_g]: every task weighs by the share of its attempts that is covered.
    """
    limit = float(settings_of(certificate).error_limit)
    new = new_tasks(certificate, scores, outcomes, tasks)
    stream, alpha, delta = new.stream, certificate.alpha, certificate.delta
    state = DetectorState.of(alarm_process(stream, limit), 1 / delta)
    realized, first = stream.realized_error, state.first_alarm_at
    figures = {
        "known": new.known,
        "estimand": certificate.estimand,
        "unscored": new.unscored,
        "rows": new.rows,
        "empty": int(np.count_nonzero(stream.covered == 0)),
        "tasks": len(stream.labels),
    }
    return Monitoring(
        alarm=state.alarm,
        e_value=state.value,
        tasks=len(stream.labels),
        known_tasks=new.known.number,
        interval=error_interval(stream, delta),
        detector="e_process",
        alpha=alpha,
        delta=delta,
        certificate_sha256=certificate.sha256,
        first_alarm_task=None if first is None else stream.labels[first - 1],
        first_alarm_at=first,
        certified_at=_first(certification_process(stream, alpha), 1 / delta),
        covered_tasks=int(np.count_nonzero(stream.covered)),
        covered_trajectories=int(stream.covered.sum()),
        errors=int(stream.errors.sum()),
        trajectories=new.rows - new.unscored,
        unscored=new.unscored,
        realized_error=None if realized is None else significant(realized),
        findings=tuple(
            {"code": code, "message": SENTENCES[code].format(**figures)}
            for code, holds in (
                ("known_tasks", new.known.number),
                ("estimand_differs", certificate.estimand != "task"),
                ("unscored_rows", new.unscored),
                ("nothing_covered", figures["empty"]),
            )
            if holds
        ),
        e_process=state,
    )


class NewTasks(NamedTuple):
    """The new tasks of a labelled table, counted at a certified threshold."""

    stream: TaskStream
    known: KnownTasks
    rows: int
    unscored: int


def new_tasks(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
) -> NewTasks:
    """Count what a certified threshold decides in each new task, in the order of first rows."""
    if certificate.threshold is None:
        raise InputError(
            "The certificate certifies nothing, so there is nothing to monitor. Give one that "
            "certifies a threshold."
        )
    observe(scores, outcomes, tasks)
    labels, codes = task_codes(tasks)
    known = known_tasks(certificate.inputs, labels)
    if known.number and (known.known.all() or not known.complete):
        raise InputError(f"There is nothing to monitor by. {known.sentence}")
    new = ~known.known[codes]
    codes, values = codes[new], np.asarray(scores, dtype=np.float64)[new]
    right = np.asarray(outcomes, dtype=np.float64)[new] == 1
    decided = covers(certificate.side, certificate.threshold, values)
    wrong = decided & (right == (certificate.side == "reject"))
    found, first = np.unique(codes, return_index=True)
    order = found[np.argsort(first, kind="stable")]
    scored = ~np.isnan(values)
    covered, errors, sizes = (
        np.bincount(codes[rows], minlength=len(labels))[order].astype(np.int64)
        for rows in (decided, wrong, scored)
    )
    scale = np.maximum(sizes, 1).astype(np.float64)
    stream = TaskStream(covered, errors, scale, tuple(labels[code] for code in order))
    return NewTasks(stream, known, values.size, int(values.size - scored.sum()))


def partly_labelled(scores: ArrayLike, labelled: ArrayLike, tasks: Names) -> set[Hashable]:
    """Return the tasks that have labels for some of their scored runs only.

    Whether a run is labelled may depend on its outcome. The share of errors among the labels of
    such a task may then differ from that of the task.

    Parameters
    ----------
    scores : array_like of float, shape (rows,)
        NaN = unscored; such runs need no label.
    labelled : array_like of bool, shape (rows,)
    tasks : sequence of hashables, shape (rows,)
    """
    scored, known = ~np.isnan(np.asarray(scores, dtype=np.float64)), np.asarray(labelled, bool)
    names = np.asarray(tasks, dtype=object)
    return set(names[known & scored]) & set(names[~known & scored])


def _first(log_process: Floats, threshold: float) -> int | None:
    reached = log_process >= math.log(threshold)
    return int(np.argmax(reached)) + 1 if reached.any() else None


@dataclass(frozen=True)
class MonitorPath:
    """The interval of a monitor over its tasks, and the realised error."""

    # numbers of tasks, the last one all of them
    at: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    error: tuple[float | None, ...]  # None before anything was covered


def monitor_path(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
) -> MonitorPath:
    """Compute the interval of a monitor at evenly spaced numbers of tasks."""
    stream = new_tasks(certificate, scores, outcomes, tasks).stream
    length = stream.covered.size
    at = np.unique(np.linspace(1, length, min(_POINTS, length)).round().astype(int)).tolist()
    heads = [stream.head(place) for place in at]
    low, high = zip(*(error_interval(head, certificate.delta) for head in heads), strict=True)
    errors = (head.realized_error for head in heads)
    rounded = tuple(None if error is None else significant(error) for error in errors)
    return MonitorPath(tuple(at), low, high, rounded)
