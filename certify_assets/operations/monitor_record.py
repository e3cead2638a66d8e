"""The stored document of a monitor, and its status in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.errors import IntegrityError
from certify_assets.judges.judged import JudgedCorpus

if TYPE_CHECKING:
    from certify_assets.certificates import Monitoring
    from certify_assets.certificates.monitor import MonitorPath


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
    threshold: float | None
    coverage: float
    procedure: str
    promise: str
    certificate_sha256: str
    needed: int  # covered tasks below which silence means little
    result: Monitoring
    path: MonitorPath
    source: str = ""  # files or operation

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> MonitorEntry:
        """Read an entry of a stored document."""
        from certify_assets.certificates.monitor import DetectorState, Monitoring, MonitorPath

        values = dict(document)
        result, path = dict(values.pop("result")), values.pop("path")
        for name in ("interval", "findings"):
            result[name] = tuple(result[name])
        for name in ("e_process", "shiryaev_roberts"):
            result[name] = DetectorState(**result[name])
        series = {name: tuple(points) for name, points in path.items()}
        return cls(**values, result=Monitoring(**result), path=MonitorPath(**series))


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
    def from_dict(cls, document: Mapping[str, Any]) -> MonitorRecord:
        """Read a document; raise KeyError, TypeError or ValueError if it is none."""
        values = dict(document)
        operation = values.pop("operation")
        if operation is not None:
            values["operation"] = MonitoredOperation(
                LabelPrefix(**operation["labels"]),
                operation["decisions"],
                {name: StreamFigures(**one) for name, one in operation["streams"].items()},
            )
        values["certificates"] = tuple(values["certificates"])
        values["findings"] = tuple(values["findings"])
        values["files"] = tuple(SampleFile(**file) for file in values["files"])
        values["monitors"] = tuple(MonitorEntry.from_dict(entry) for entry in values["monitors"])
        return cls(**values)

    @classmethod
    def load(cls, judge: JudgedCorpus) -> MonitorRecord:
        """Read the stored monitor of a judge, whatever is stored next to it now."""
        key = judge.key("monitor.json")
        try:
            return cls.from_dict(judge.store.read_json(key))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise IntegrityError(
                f"{judge.store.locate(key)} is not the document of a monitor ({error}); restore it "
                "from a backup."
            ) from None

    def has_finding(self, code: str) -> bool:
        """Whether a finding has this code."""
        return any(finding["code"] == code for finding in self.findings)


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
