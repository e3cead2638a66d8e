"""The monitor of a judge: labelled audit samples that lie in the data root, put to the certificates that decide.

``monitoring/<corpus>/<judge>/`` holds score tables with outcomes (CSV, Parquet or JSON Lines). Files are read in the order of their names and
rows as they stand, so that a file added later must have a later name; what was read before is recorded with its hash. The judge that is deployed is
monitored on what operation brings as well: labelled tasks of the draw, a stream and an e-process of their own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.evaluation.certification import load_certificates
from certify_assets.evaluation.score_table import (
    NOT_STATED,
    ScoreTable,
    read_score_table,
    require_audit_sample,
)
from certify_assets.files import sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import ALPHAS, PROCEDURES, SIDES
from certify_assets.operations.alarms import record_alarms
from certify_assets.operations.in_use import in_use
from certify_assets.operations.monitor_stream import feed, feed_source, grown_at_its_end

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

__all__ = [
    "STATUSES",
    "AuditSample",
    "describe_monitors",
    "load_monitor",
    "monitor_entry",
    "monitor_judge",
    "monitored_certificates",
    "read_audit_sample",
]

#: how a monitor stands, from the worst
STATUSES = ("alarm", "too_few", "nothing", "quiet")
_ENDINGS = (".csv", ".parquet", ".pq", ".jsonl", ".ndjson")
_REWRITTEN = {
    "code": "stream_rewritten",
    "message": (
        "Labels that an earlier reading for these certificates held were changed, removed, or preceded by a file of an earlier name; the alarm's "
        "probability holds for a stream that only grows at its end."
    ),
}


@dataclass(frozen=True, eq=False)
class AuditSample:
    """The labelled rows of all files, in order.

    Parameters
    ----------
    scores, outcomes, tasks : arrays, shape (rows,)
    files : tuple of dict
        name, sha256, rows and tasks of each file.
    stated : bool
        Whether every file says of its rows that they are an audit sample.
    """

    scores: np.ndarray[Any, np.dtype[np.float64]]
    outcomes: np.ndarray[Any, np.dtype[np.int8]]
    tasks: np.ndarray[Any, np.dtype[np.object_]]
    files: tuple[dict[str, Any], ...]
    stated: bool


def monitored_certificates(certificates: Sequence[Certificate]) -> list[Certificate]:
    """Return the certificates that decide: of each side the one of the deployed procedure with the strictest budget that certifies."""
    found = []
    for side in SIDES:
        candidates = [
            item
            for item in certificates
            if item.side == side and item.procedure == PROCEDURES[0] and item.certified
        ]
        found += sorted(candidates, key=lambda item: ALPHAS.index(item.alpha))[:1]
    return found


def monitor_judge(judge: JudgedCorpus) -> dict[str, Any]:
    """Put the audit sample of a judge to its certificates; store and return the document.

    Raises
    ------
    InputError
        If a row is no audit sample, has no outcome, or belongs to a task of the splits or of another file.
    StaleCertificateError, ForgedCertificateError
        If the stored certificates are not those of what is stored now.
    """
    certificates = _in_use(judge)
    sample = read_audit_sample(judge)
    columns = None if sample is None else (sample.scores, sample.outcomes, sample.tasks)
    entries = (
        []
        if columns is None
        else [{**monitor_entry(item, *columns), "source": "files"} for item in certificates]
    )
    # a stream of its own: files that come later would otherwise have to stand before or between its tasks
    streams = {item.sha256: feed(judge, item) for item in certificates}
    fed = [
        (item, stream)
        for item in certificates
        if (stream := streams[item.sha256]) is not None and len(stream.tasks)
    ]
    entries += [
        {**monitor_entry(item, stream.scores, stream.outcomes, stream.tasks), "source": "operation"}
        for item, stream in fed
    ]
    files = [] if sample is None else list(sample.files)
    document: dict[str, Any] = {
        "corpus": judge.corpus.name,
        "judge": judge.name,
        **_describe(entries, certificates, f"monitoring/{judge.corpus}/{judge}"),
        "certificates": [item.sha256 for item in certificates],
        "files": files,
        "monitors": entries,
        "findings": [*_several(entries), *_findings(judge, certificates, sample)],
        "operation": feed_source(
            judge, {name: stream for name, stream in streams.items() if stream is not None}
        ),
    }
    if not grown_at_its_end(judge.store, _key(judge.corpus.name, judge.name), streams):
        document["findings"] += [] if _told(document["findings"]) else [dict(_REWRITTEN)]
    judge.store.write_json(_key(judge.corpus.name, judge.name), document)
    record_alarms(judge, entries)
    return document


def load_monitor(judge: JudgedCorpus) -> dict[str, Any]:
    """Return the stored monitor of a judge.

    Raises
    ------
    StaleCertificateError
        If it is of other certificates or other files than those stored now.
    """
    document: dict[str, Any] = judge.store.read_json(_key(judge.corpus.name, judge.name))
    now = [item.sha256 for item in _in_use(judge)]
    folder = f"monitoring/{judge.corpus}/{judge}"
    files = {name: judge.store.sha256(f"{folder}/{name}") for name in judge.store.names(folder)}
    fed = _stands_on(document.get("operation")) == _stands_on(feed_source(judge, {}))
    if (
        not fed
        or document["certificates"] != now
        or {file["name"]: file["sha256"] for file in document["files"]} != files
    ):
        raise StaleCertificateError(
            f"the monitor of {judge} on {judge.corpus} is of other certificates or labels than those stored now; materialize judges/{judge}/monitor again."
        )
    return document


def _stands_on(operation: dict[str, Any] | None) -> tuple[Any, Any] | None:
    return None if operation is None else (operation["labels_sha256"], operation["batches"])


def _in_use(judge: JudgedCorpus) -> list[Certificate]:
    """Return the certificates that are monitored: those of the deployment, else the judge's own that would decide."""
    deployed = in_use(judge)
    if deployed is not None:
        return [item for item in deployed if item.certified]
    return monitored_certificates(load_certificates(judge))


def monitor_entry(
    certificate: Certificate,
    scores: np.ndarray[Any, Any],
    outcomes: np.ndarray[Any, Any],
    tasks: np.ndarray[Any, Any],
    **options: Any,
) -> dict[str, Any]:
    """Monitor one certificate, with all that its page draws.

    Parameters
    ----------
    certificate : Certificate
    scores, outcomes, tasks : arrays
    **options
        Of :func:`certify_assets.certificates.monitor_certificate`.

    Returns
    -------
    dict
        side, alpha, delta, threshold, coverage, procedure, promise, certificate_sha256, needed (covered tasks below which silence says
        little), result (the monitoring) and path.
    """
    from certify_assets.certificates import monitor_certificate, n_min
    from certify_assets.certificates.monitor import monitor_path

    result = monitor_certificate(certificate, scores, outcomes, tasks, **options)
    declared = options.get("max_task_size") or certificate.parameters["max_task_size"]
    cap = declared if result.estimand == "trajectory" else None
    names = ("side", "alpha", "delta", "threshold", "coverage", "procedure", "promise")
    return {
        **{name: getattr(certificate, name) for name in names},
        "certificate_sha256": certificate.sha256,
        "needed": n_min(certificate.alpha, certificate.delta),
        "result": result.to_dict(),
        "path": monitor_path(certificate, scores, outcomes, tasks, max_task_size=cap).to_dict(),
    }


def read_audit_sample(judge: JudgedCorpus) -> AuditSample | None:
    """Read every file of a judge's audit sample, in the order of names; None when there is none.

    Raises
    ------
    InputError
        With file, row and remedy, for anything that may not feed a monitor.
    """
    folder = f"monitoring/{judge.corpus}/{judge}"
    names = judge.store.names(folder)
    if not names:
        return None
    assignment = judge.corpus.manifest.assignment
    tables, files, stated = [], [], True
    owner: dict[str, str] = {}
    for name in names:
        if Path(name).suffix.lower() not in _ENDINGS:
            raise InputError(
                f"{judge.store.locate(folder)}/{name} is no score table; keep only {', '.join(_ENDINGS)} files there."
            )
        data = judge.store.read_bytes(f"{folder}/{name}")
        table, said = _read(data, name, judge.store.locate(f"{folder}/{name}"))
        stated &= said
        _refuse_seen(table, name, assignment, owner)
        owner.update(dict.fromkeys((str(task) for task in table.tasks), name))
        files.append(
            {
                "name": name,
                "sha256": sha256_bytes(data),
                "rows": len(table),
                "tasks": len(set(table.tasks)),
            }
        )
        tables.append(table)
    return AuditSample(
        np.concatenate([table.scores for table in tables]),
        np.concatenate([table.labelled() for table in tables]),
        np.concatenate([table.tasks for table in tables]),
        tuple(files),
        stated,
    )


def _key(corpus: str, judge: str) -> str:
    return f"judges/{judge}/{corpus}/monitor.json"


def _read(data: bytes, name: str, location: str) -> tuple[ScoreTable, bool]:
    # through a copy, so that a remote root works and the bytes hashed are those read
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            table = read_score_table(path)
            table.labelled()
            return table, require_audit_sample(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), location)) from None


def _refuse_seen(table: ScoreTable, name: str, assignment: Any, owner: dict[str, str]) -> None:
    for task in dict.fromkeys(str(task) for task in table.tasks):
        if task in assignment:
            raise InputError(
                f"{name}: task {task!r} is in the {assignment[task]} split; only tasks that the judge and its certificate have not seen may feed "
                "the monitor, so take it out."
            )
        if task in owner:
            raise InputError(
                f"{name}: task {task!r} is in {owner[task]} as well; all attempts of a task belong together, so give them in one file."
            )


def describe_monitors(entries: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the status of some monitors (see ``STATUSES``) and the reason for it in words."""
    if any(entry["result"]["alarm"] for entry in entries):
        status = "alarm"
    else:
        few = any(entry["result"]["covered_tasks"] < entry["needed"] for entry in entries)
        status = "too_few" if few else "quiet"
    return {"status": status, "reason": "; ".join(_stands(entry) for entry in entries) + "."}


def _describe(
    entries: Sequence[dict[str, Any]], certificates: Sequence[Certificate], folder: str
) -> dict[str, str]:
    if not certificates:
        return {
            "status": "nothing",
            "reason": "nothing is certified, so there is nothing to monitor.",
        }
    if not entries:
        return {
            "status": "nothing",
            "reason": f"no labelled audit sample lies in {folder} or came from operation, so nothing was monitored.",
        }
    return describe_monitors(entries)


def _stands(entry: dict[str, Any]) -> str:
    result = entry["result"]
    where = f"{entry['side']} at {entry['alpha']:g}"
    if result["alarm"]:
        return f"{where}: alarm after {result['first_alarm_at']} tasks, issue a new certificate"
    seen = f"{result['covered_tasks']} covered tasks"
    if result["covered_tasks"] < entry["needed"]:
        return (
            f"{where}: no alarm, but {seen} are fewer than {entry['needed']}, too few to say much"
        )
    return f"{where}: no alarm on {seen}"


def _findings(
    judge: JudgedCorpus, certificates: Sequence[Certificate], sample: AuditSample | None
) -> list[dict[str, str]]:
    found = []
    if sample is not None and not sample.stated:
        found.append(dict(NOT_STATED))
    if _rewritten(judge, certificates, sample):
        found.append(dict(_REWRITTEN))
    return found


def _several(entries: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    text = "Each certificate's monitor raises a false alarm with probability at most its own delta; together at most their sum."
    return [{"code": "several_monitors", "message": text}] if len(entries) > 1 else []


def _told(findings: Sequence[dict[str, str]]) -> bool:
    return any(finding["code"] == "stream_rewritten" for finding in findings)


def _rewritten(
    judge: JudgedCorpus, certificates: Sequence[Certificate], sample: AuditSample | None
) -> bool:
    """Whether the stream has ever been something else than what it was, grown at its end, since these certificates were issued."""
    if not judge.store.exists(_key(judge.corpus.name, judge.name)):
        return False
    before = judge.store.read_json(_key(judge.corpus.name, judge.name))
    if before["certificates"] != [item.sha256 for item in certificates]:
        return False
    files = [] if sample is None else list(sample.files)
    return _told(before["findings"]) or before["files"] != files[: len(before["files"])]
