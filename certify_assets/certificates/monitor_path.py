"""How the answer of a monitor came about: both detectors and the interval after each task, for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.certificate import Certificate, significant
from certify_assets.certificates.eprocess import (
    TaskStream,
    alarm_process,
    error_interval,
    shiryaev_roberts,
)
from certify_assets.certificates.monitor import task_stream

__all__ = ["MonitorPath", "monitor_path"]

_POINTS = 60


@dataclass(frozen=True)
class MonitorPath:
    """A monitor after each of its tasks.

    Attributes
    ----------
    log_e, log_sr : tuple of float
        Natural logarithms of the e-process and of the Shiryaev–Roberts detector, one a task.
    at : tuple of int
        Numbers of tasks at which the interval was computed, the last one all of them.
    low, high : tuple of float
        Ends of the confidence sequence there.
    error : tuple of float or None
        Realised error there; None before anything was covered.
    """

    log_e: tuple[float, ...]
    log_sr: tuple[float, ...]
    at: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    error: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the path as JSON values."""
        return {name: list(values) for name, values in asdict(self).items()}


def monitor_path(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    max_task_size: int | None = None,
    points: int = _POINTS,
) -> MonitorPath:
    """Follow what :func:`certify_assets.certificates.monitor_certificate` answers, task by task.

    Parameters
    ----------
    certificate : Certificate
    scores, outcomes, tasks
        As for the monitor, which has accepted them.
    max_task_size : int, optional
        The cap of the trajectory estimand; None follows the task estimand.
    points : int
        Most numbers of tasks at which the interval is computed.

    Returns
    -------
    MonitorPath
    """
    stream = task_stream(certificate, scores, outcomes, tasks, max_task_size=max_task_size)
    length = stream.covered.size
    at = sorted({int(place) for place in np.linspace(1, length, min(points, length)).round()})
    heads = [_head(stream, place) for place in at]
    ends = [error_interval(head, certificate.delta) for head in heads]
    errors = [head.realized_error for head in heads]
    return MonitorPath(
        log_e=_rounded(alarm_process(stream, certificate.alpha)),
        log_sr=_rounded(shiryaev_roberts(stream, certificate.alpha)),
        at=tuple(at),
        low=tuple(low for low, _ in ends),
        high=tuple(high for _, high in ends),
        error=tuple(None if error is None else significant(error) for error in errors),
    )


def _head(stream: TaskStream, length: int) -> TaskStream:
    return TaskStream(
        stream.covered[:length],
        stream.errors[:length],
        stream.scale[:length],
        stream.labels[:length],
    )


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(significant(float(value)) for value in values)
