"""Records that MLflow did not take: kept in the data root, and sent with the next one that it takes.

Work does not wait for MLflow. A record that fails lies under ``tracking/waiting/`` until a later step of any run gets through; for two
minutes after a failure no step asks again, so that a server that hangs costs one step its time limit, not all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from certify_assets.errors import CertifyError
from certify_assets.files import canonical_json, sha256_bytes, sha256_file
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import Record, Tracker, without_credentials

__all__ = ["Recorded", "waiting_records", "write_or_keep"]

_FOLDER = "tracking/waiting"
_FAILURE = "tracking/failure.json"
_PAUSE_SECONDS = 120.0
_MOST = 50
_LONGEST_QUEUE = 2000
_TAG = "certify.record"


@dataclass(frozen=True)
class Recorded:
    """What became of a record.

    Parameters
    ----------
    url : str or None
        Its page in the MLflow UI; None where it was not taken.
    reason : str
        Why it was not, in words.
    sent_late : int
        Records of earlier steps that were sent with it.
    """

    url: str | None
    reason: str = ""
    sent_late: int = 0


def write_or_keep(store: Store, record: Record, *, experiment: str) -> Recorded:
    """Write a record to the data root's MLflow, and those that wait; keep it where MLflow does not take it, whatever MLflow raises."""
    place = without_credentials(os.environ.get("MLFLOW_TRACKING_URI", ""))
    if reason := _paused(store, place):
        return _keep(store, record, reason)
    try:
        tracker = Tracker.for_store(store, experiment=experiment)
        url = tracker.write(record)
    except CertifyError as error:
        # no MLflow is configured, so that none will ever take it
        return Recorded(None, str(error))
    except Exception as error:
        # whatever MLflow's backend raises: no result may depend on the record of it
        reason = (
            f"{type(error).__name__}: {without_credentials(' '.join(str(error).split()))[:300]}"
        )
        with suppress(OSError):
            store.write_json(_FAILURE, {"time": time.time(), "place": place, "reason": reason})
        return _keep(store, record, reason)
    return Recorded(url, sent_late=_send_waiting(store, tracker))


def waiting_records(store: Store) -> list[str]:
    """Return the keys of the records that wait, the oldest first."""
    return [f"{_FOLDER}/{name}" for name in store.names(_FOLDER) if name.endswith(".json")]


def _paused(store: Store, place: str) -> str:
    """Return why MLflow is not asked at the moment; empty where it is. A clock that was set back ends the pause."""
    try:
        failure = store.read_json(_FAILURE) if store.exists(_FAILURE) else {}
        recent = (
            failure.get("place") == place
            and 0 <= time.time() - float(failure.get("time", 0)) < _PAUSE_SECONDS
        )
    except (CertifyError, OSError, AttributeError, TypeError, ValueError):
        return ""
    return str(failure["reason"]) if recent else ""


def _keep(store: Store, record: Record, reason: str) -> Recorded:
    document = {
        **asdict(record),
        "files": _hashed(record.files),
        "kept": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    # numbers alone in the curves of a record, texts by str as MLflow would write them
    document["params"] = {name: str(value) for name, value in record.params.items()}
    digest = sha256_bytes(canonical_json(document))
    if len(waiting_records(store)) >= _LONGEST_QUEUE:
        return Recorded(
            None, f"{reason}; {_LONGEST_QUEUE:,} records wait already, so it was not kept"
        )
    try:
        # named by time, so that they are sent in their order
        store.write_json(f"{_FOLDER}/{time.time_ns():020d}_{digest[:16]}.json", document)
    except OSError as error:
        return Recorded(None, f"{reason}; nor could it be kept ({error.strerror or error})")
    return Recorded(None, f"{reason}; kept, and sent with a later record")


def _hashed(files: Mapping[Path, str]) -> list[list[str]]:
    return [
        [str(path), folder, sha256_file(path)] for path, folder in files.items() if path.is_file()
    ]


def _send_waiting(store: Store, tracker: Tracker) -> int:
    """Send what waits; a record is taken away only after it arrived, and one that arrived is not sent twice."""
    sent = 0
    for key in waiting_records(store)[:_MOST]:
        name = key.rsplit("/", 1)[-1]
        try:
            record = _restored(store.read_json(key), name)
        except (CertifyError, OSError, AttributeError, KeyError, TypeError, ValueError):
            # not as it was kept: it stays for people to look at
            continue
        try:
            if tracker.find({_TAG: name}) is None:
                tracker.write(record)
                sent += 1
            store.delete(key)
        except Exception:
            break
    return sent


def _restored(document: Mapping[str, Any], name: str) -> Record:
    kept = {key: value for key, value in document.items() if key not in {"files", "kept"}}
    # a file that was replaced since is another step's
    files = {
        Path(path): folder
        for path, folder, digest in document["files"]
        if Path(path).is_file() and sha256_file(Path(path)) == digest
    }
    record = Record(**{**kept, "files": files})
    return replace(record, tags={**record.tags, _TAG: name, "certify.kept": document["kept"]})
