"""Where a decision comes from: decision → certificate → scores → adapter → harvest → splits → import → source files, each checked now."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.operations.batches import ready_batches
from certify_assets.operations.deployment import certificate_key
from certify_assets.operations.judge_lineage import certificate_links, source_link
from certify_assets.operations.layout import batch_key, batch_names
from certify_assets.operations.links import Link, compared, file_link, told
from certify_assets.storage.store import Store

__all__ = ["Found", "find", "walk"]

_HASH = re.compile(r"[0-9a-f]{8,64}")
_PLACES = ("decision", "batch", "certificate")


@dataclass(frozen=True)
class Found:
    """What an ID names.

    Parameters
    ----------
    kind : {"decision", "batch", "certificate"}
    corpus : str
    name : str
        Batch, or hash of the certificate.
    row : dict or None
        Of the table of decisions.
    """

    kind: str
    corpus: str
    name: str
    row: dict[str, Any] | None = None


def find(store: Store, name: str, corpus: str | None = None) -> list[Found]:
    """Return everything that a trajectory_id, the beginning of a certificate's hash, or a batch names; of one kind and one corpus.

    Raises
    ------
    InputError
        If it names nothing, or things in several corpora or of several kinds.
    """
    corpora = (
        [corpus]
        if corpus is not None
        else sorted({*registered_corpora(store), *store.names("operations")})
    )
    found = [
        item
        for one in corpora
        for item in (
            *_decisions(Corpus(store, one), name),
            *_batch(Corpus(store, one), name),
            *_certificates(Corpus(store, one), name),
        )
    ]
    if not found:
        where = "" if corpus is None else f" of {corpus}"
        raise InputError(
            f"{name!r} is no trajectory_id of a decision, no batch and no certificate{where}; give one, of a hash at least 8 digits."
        )
    if len({item.corpus for item in found}) > 1:
        raise InputError(
            f"{name!r} is in {', '.join(sorted({item.corpus for item in found}))}; choose one with --corpus."
        )
    certificates = {item.name for item in found if item.kind == "certificate"}
    if len({item.kind for item in found}) > 1 or len(certificates) > 1:
        raise InputError(
            f"{name!r} names {', '.join(f'{item.kind} {item.name}' for item in found)}; give more of it."
        )
    return found


def walk(store: Store, found: Found) -> Link:
    """Follow what was found to the files that it comes from, and compare every link with what is stored now."""
    try:
        return _walked(store, found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return Link(
            found.kind,
            found.name,
            "differs",
            detail=f"a document that it stands on has a value of another kind ({error}).",
        )


def _walked(store: Store, found: Found) -> Link:
    if found.kind == "certificate":
        return certificate_link(Corpus(store, found.corpus), found.name)
    if found.kind == "batch":
        about = _read(store, batch_key(found.corpus, found.name, "batch.json"))
        certificates = [
            certificate_link(Corpus(store, found.corpus), sha256)
            for sha256 in about.get("certificates", [])
        ]
        return batch_link(Corpus(store, found.corpus), found.name, extra=certificates)
    return _decision_link(store, found)


def certificate_link(corpus: Corpus, sha256: str) -> Link:
    """Return a certificate, from where it is kept by its hash since it decided, or else from its judge's documents."""
    key = certificate_key(corpus.name, sha256)
    item = _stored_certificate(corpus, sha256)
    if item is None:
        return file_link(
            corpus.store,
            "certificate",
            key,
            sha256,
            detail="it is nowhere in the data root any more.",
        )
    detail = f"{item.side} at {item.alpha:g}, δ={item.delta:g}, threshold {item.threshold}, of {item.provenance.get('judge', 'a score table')}"
    links = certificate_links(corpus.store, item)
    if corpus.store.exists(key):
        return file_link(corpus.store, "certificate", key, sha256, detail=detail, links=links)
    return compared(
        "certificate",
        f"{sha256[:12]} (not deployed)",
        sha256,
        item.sha256,
        detail=detail,
        links=links,
    )


def batch_link(
    corpus: Corpus, batch: str, *, sources: Sequence[str] | None = None, extra: Sequence[Link] = ()
) -> Link:
    """Return a batch with its tables, and its source files or those that are named."""
    about = _read(corpus.store, batch_key(corpus.name, batch, "batch.json"))
    imported = _read(corpus.store, batch_key(corpus.name, batch, "import.json"))
    files = {
        name: sha256
        for name, sha256 in imported.get("files", {}).items()
        if sources is None or name in sources
    }
    read = [
        source_link(corpus.store, imported.get("paths", []), name, sha256)
        for name, sha256 in sorted(files.items())
    ]
    tables = [
        file_link(
            corpus.store,
            "table",
            batch_key(corpus.name, batch, f"{name}.parquet"),
            str(about.get(f"{name}_sha256", "")),
        )
        for name in ("decisions", "scores", "identities")
    ]
    runs = file_link(
        corpus.store,
        "runs",
        batch_key(corpus.name, batch, "runs.parquet"),
        str(about.get("runs_sha256", "")),
        links=read,
    )
    draw = file_link(
        corpus.store,
        "draw",
        batch_key(corpus.name, batch, "draw.json"),
        str(about.get("draw_sha256", "")),
    )
    brought = file_link(
        corpus.store,
        "import",
        batch_key(corpus.name, batch, "import.json"),
        str(about.get("import_sha256", "")),
        links=[runs, draw],
    )
    refusal = (about.get("refusal") or {}).get("sentence", "")
    detail = f"{about.get('rows', 0)} runs, decided under deployment {about.get('deployment')} at {about.get('time', '')} {refusal}".strip()
    key = batch_key(corpus.name, batch, "batch.json")
    if not about:
        return Link(
            "batch",
            key,
            "missing",
            detail="the document of the batch is gone.",
            links=(*tables, brought, *extra),
        )
    return told("batch", key, detail, links=[*tables, brought, *extra])


def _decision_link(store: Store, found: Found) -> Link:
    row = found.row or {}
    certificates = [
        certificate_link(Corpus(store, found.corpus), sha256)
        for sha256 in str(row["certificate_sha256"]).split(";")
        if sha256
    ]
    expected, given = _decided_again(store, found), f"{row['decision']} {row['reason']}"
    links = (
        *certificates,
        batch_link(Corpus(store, found.corpus), found.name, sources=[str(row["source_file"])]),
    )
    score = "no score" if row["score"] is None else f"score {row['score']:.6g}"
    detail = (
        f"{row['decision']} ({row['reason']}), {score} of {row['judge'] or 'no judge'}, task {row['task_id']}, agent {row['agent']}"
        + (f", asked as {row['asked']}" if row["asked"] else "")
    )
    status = "told" if expected is None else "holds" if expected == given else "differs"
    return Link(
        "decision",
        str(row["trajectory_id"]),
        status,
        expected or "",
        given,
        detail,
        must=expected is not None,
        links=links,
    )


def _decided_again(store: Store, found: Found) -> str | None:
    """Decide the run once more by its stored score and certificates; None where no threshold decided it."""
    from certify_assets.certificates import decide

    row = found.row or {}
    items = [
        _stored_certificate(Corpus(store, found.corpus), sha256)
        for sha256 in str(row["certificate_sha256"]).split(";")
        if sha256
    ]
    kept = [item for item in items if item is not None]
    if not kept or len(kept) < len(items) or row["reason"] in ("seen_task", "changed_run"):
        return None
    scores = _read_rows(
        store, batch_key(found.corpus, found.name, "scores.parquet"), str(row["trajectory_id"])
    )
    if not scores:
        return "no stored score"
    again = decide(kept, [math.nan if scores[0]["score"] is None else scores[0]["score"]])
    return f"{again.decisions[0]} {again.reasons[0]}"


def _stored_certificate(corpus: Corpus, sha256: str) -> Any:
    """Return a certificate that is kept since it decided, or that a judge or recertification has now; None where there is none."""
    from certify_assets.certificates import Certificate

    key = certificate_key(corpus.name, sha256)
    documents = (
        [corpus.store.read_json(key)]
        if corpus.store.exists(key)
        else [item for item in _issued(corpus) if _sha256(item) == sha256]
    )
    try:
        return Certificate.from_dict(documents[0]) if documents else None
    except CertifyError:
        return None


def _decisions(corpus: Corpus, name: str) -> list[Found]:
    batches = batch_names(corpus)
    rows = [
        (batch, row)
        for batch in batches
        for row in _read_rows(
            corpus.store, batch_key(corpus.name, batch, "decisions.parquet"), name
        )
    ]
    return [Found("decision", corpus.name, batch, row) for batch, row in rows]


def _batch(corpus: Corpus, name: str) -> list[Found]:
    return [Found("batch", corpus.name, name)] if name in ready_batches(corpus) else []


def _certificates(corpus: Corpus, name: str) -> list[Found]:
    if not _HASH.fullmatch(name):
        return []
    kept = [
        entry.removesuffix(".json")
        for entry in corpus.store.names(f"operations/{corpus}/certificates")
    ]
    hashes = {
        sha256 for sha256 in (*kept, *map(_sha256, _issued(corpus))) if sha256.startswith(name)
    }
    return [Found("certificate", corpus.name, sha256) for sha256 in sorted(hashes)]


def _issued(corpus: Corpus) -> list[Any]:
    """Return the documents of all certificates that judges and recertifications have now."""
    keys = [f"judges/{judge}/{corpus}/certificates.json" for judge in corpus.store.names("judges")]
    numbers = corpus.store.names(f"operations/{corpus}/recertifications")
    keys += [
        f"operations/{corpus}/recertifications/{number}/certificates.json" for number in numbers
    ]
    return [
        item
        for key in keys
        if corpus.store.exists(key)
        for item in _read(corpus.store, key).get("certificates", [])
    ]


def _sha256(document: Any) -> str:
    return sha256_bytes(canonical_json(document))


def _read(store: Store, key: str) -> dict[str, Any]:
    """Return a document, empty where there is none that can be read: its link says so."""
    try:
        found = store.read_json(key) if store.exists(key) else {}
    except CertifyError:
        found = {}
    return found if isinstance(found, dict) else {}


def _read_rows(store: Store, key: str, trajectory: str) -> list[dict[str, Any]]:
    """Return the rows of a run in a table, without reading the others into memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not store.exists(key):
        return []
    try:
        with store.as_file(key) as path:
            rows: list[dict[str, Any]] = pq.read_table(
                path, filters=[("trajectory_id", "=", trajectory)]
            ).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise IntegrityError(
            f"{store.locate(key)} cannot be read ({type(error).__name__}); restore it from a backup."
        ) from None
    return rows
