"""The stored document of a monitor, and its status in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from certify_assets.certificates import Certificate, monitor_certificate, n_min
from certify_assets.certificates.monitor import Monitoring, MonitorPath, monitor_path
from certify_assets.files import stored_as

if TYPE_CHECKING:
    from certify_assets.storage.store import Store


@dataclass(frozen=True)
class SampleFile:
    """A file of an audit sample as it was read."""

    name: str
    sha256: str
    rows: int
    tasks: int


@dataclass(frozen=True)
class LabelPrefix:
    """The labels up to one of them, by number and hash of its event."""

    sequence: int  # 0 without labels
    sha256: str


@dataclass(frozen=True)
class StreamFigures:
    """The figures of a stream of operation, and the hash of its rows in their order."""

    rows: int
    audit_tasks: int
    spot_tasks: int
    left_out: Mapping[str, int]
    sha256: str
    batch_draws: int = 0  # labelled runs of batch draws, none of which is in the stream


@dataclass(frozen=True)
class MonitoredOperation:
    """The streams of operation, one a certificate by its hash, and what they depend on."""

    labels: LabelPrefix
    decisions: str  # version of those of all batches
    streams: Mapping[str, StreamFigures]


@dataclass(frozen=True)
class MonitorEntry:
    """The monitoring of one certificate on one stream, with all that its page draws."""

    side: str
    alpha: float
    delta: float
    promise: str
    certificate_sha256: str
    needed: int  # covered tasks below which silence means little
    result: Monitoring
    path: MonitorPath
    source: str = ""  # files or operation


def monitor_entry(
    certificate: Certificate,
    scores: NDArray[Any],
    outcomes: NDArray[Any],
    tasks: NDArray[Any],
    *,
    source: str = "",
    **options: Any,
) -> MonitorEntry:
    """Monitor one certificate, with all that its page draws; options as `monitor_certificate`."""
    result = monitor_certificate(certificate, scores, outcomes, tasks, **options)
    return MonitorEntry(
        side=certificate.side,
        alpha=certificate.alpha,
        delta=certificate.delta,
        promise=certificate.promise,
        certificate_sha256=certificate.sha256,
        needed=n_min(certificate.alpha, certificate.delta),
        result=result,
        path=monitor_path(certificate, scores, outcomes, tasks),
        source=source,
    )


@dataclass(frozen=True, kw_only=True)
class MonitorRecord:
    """The document of a monitor; fields as stored, `operation` for the deployed judge alone."""

    corpus: str
    judge: str
    status: str
    reason: str
    certificates: tuple[str, ...]
    files: tuple[SampleFile, ...] = ()
    monitors: tuple[MonitorEntry, ...] = ()
    findings: tuple[Mapping[str, str], ...] = ()
    operation: MonitoredOperation | None = None

    @classmethod
    def load(cls, store: Store, key: str) -> MonitorRecord:
        """Read the document under a key, whatever is stored next to it now."""
        return stored_as(cls, store.read_json(key))


def describe_monitors(entries: Sequence[MonitorEntry]) -> tuple[str, str]:
    """Return alarm, too_few or quiet for some monitors, and the reason for it in words."""
    if any(entry.result.alarm for entry in entries):
        status = "alarm"
    else:
        few = any(entry.result.covered_tasks < entry.needed for entry in entries)
        status = "too_few" if few else "quiet"
    return status, "; ".join(_sentence(entry) for entry in entries) + "."


def _sentence(entry: MonitorEntry) -> str:
    result, where = entry.result, f"{entry.side} at {entry.alpha:g}"
    if result.alarm:
        return f"{where}: alarm after {result.first_alarm_at} tasks, issue a new certificate"
    seen = f"{result.covered_tasks} covered tasks"
    if result.covered_tasks < entry.needed:
        needed = f"{entry.needed}, too few to say much"
        return f"{where}: no alarm, but {seen} are fewer than {needed}"
    return f"{where}: no alarm on {seen}"
