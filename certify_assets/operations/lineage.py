"""Lineage of a decision, batch or certificate, every link compared with what is stored now."""

# decision → certificate → scores → model → harvest → splits → import → source files

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes, sha256_file, shortest
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.batch_audit import BatchAudit, settled_rows
from certify_assets.operations.batch_record import (
    BatchRecord,
    batch_names,
    closing_of,
    decided,
    draw_of,
    ready_batches,
    received,
)
from certify_assets.operations.deployment import read_deployments
from certify_assets.operations.layout import (
    CLOSED,
    NOT_COVERED,
    PROVISIONAL,
    drawn_runs,
    operation_key,
    own_key,
    recertification_key,
)
from certify_assets.operations.pool import PROVENANCE
from certify_assets.operations.recertification_record import CERTIFICATES
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.store import Store
from certify_assets.storage.urls import is_url

if TYPE_CHECKING:
    import pyarrow as pa

    from certify_assets.certificates import Certificate

_HASH = re.compile(r"[0-9a-f]{8,64}")
# a row of the decisions
_Row = dict[str, Any]


@dataclass(frozen=True)
class Link:
    """One link of a lineage."""

    kind: str
    name: str  # key in the data root, or another name
    # holds: it has the hash by which it is named; differs: another one; missing: it is not there;
    # told: it is named by no hash
    status: str
    expected: str = ""  # SHA-256 by which it is named; empty where there is none
    found: str = ""  # SHA-256 of what is stored
    detail: str = ""
    must: bool = True  # the lineage is broken where it does not hold
    links: tuple[Link, ...] = ()  # what it depends on

    @property
    def broken(self) -> bool:
        """Whether this link does not hold and should."""
        return self.must and self.status in ("differs", "missing")

    def walk(self) -> Iterator[Link]:
        """Iterate over this link and all below it."""
        yield self
        for link in self.links:
            yield from link.walk()


def compared(
    kind: str, name: str, expected: str, found: str, *, detail: str = "", links: Sequence[Link] = ()
) -> Link:
    """Return the link of something with a known hash; `found` is empty where it is missing."""
    if not expected:
        return Link(kind, name, "told", found=found, detail=detail, must=False, links=tuple(links))
    status = "missing" if not found else "holds" if found == expected else "differs"
    return Link(kind, name, status, expected, found, detail, links=tuple(links))


def file_link(
    store: Store,
    kind: str,
    key: str,
    expected: str,
    *,
    detail: str = "",
    links: Sequence[Link] = (),
) -> Link:
    """Return the link of a stored file by the hash of its bytes."""
    found = store.now().current(key)
    if found == expected:
        return object_link(store, kind, key, expected, detail=detail, links=links)
    return compared(kind, key, expected, found, detail=detail, links=links)


def object_link(
    store: Store,
    kind: str,
    name: str,
    sha256: str,
    links: Sequence[Link] = (),
    *,
    detail: str = "",
) -> Link:
    """Return the link of an object, which is named by its hash."""
    made = compared(kind, name, sha256, sha256, detail=detail, links=links)
    try:
        with store.objects.as_file(sha256):
            return made
    except IntegrityError as error:
        status = "missing" if isinstance(error, MissingObjectError) else "differs"
        return replace(made, status=status, found="", detail=str(error))


def unhashed(kind: str, name: str, detail: str = "", links: Sequence[Link] = ()) -> Link:
    """Return the link of something that nothing names by a hash."""
    return Link(kind, name, "told", detail=detail, must=False, links=tuple(links))


@dataclass(frozen=True)
class Found:
    """What an id names: a decision, a batch or a certificate."""

    kind: str
    corpus: str
    name: str  # batch, or hash of the certificate
    row: _Row | None = None  # of the decisions


def find(store: Store, name: str, corpus: str | None = None) -> list[Found]:
    """Return what a trajectory_id, the start of a certificate's hash, or a batch names."""
    store = store.now()
    corpora = [corpus] if corpus else sorted({*registered_corpora(store), *store.corpora()})
    found = [item for one in corpora for item in _named(Corpus(store, one), name)]
    if not found:
        where = "" if corpus is None else f" in {corpus}"
        raise InputError(
            f"Nothing{where} is called {name!r}. Give a trajectory id, a batch, or the first 8 "
            "digits of a certificate's hash."
        )
    if len({item.corpus for item in found}) > 1:
        places = ", ".join(sorted({item.corpus for item in found}))
        raise InputError(f"{name!r} is in {places}; choose one with --corpus.")
    certificates = {item.name for item in found if item.kind == "certificate"}
    if len({item.kind for item in found}) > 1 or len(certificates) > 1:
        names = ", ".join(f"{item.kind} {item.name}" for item in found)
        raise InputError(f"{name!r} names {names}; give more of it.")
    return found


def _named(corpus: Corpus, name: str) -> Iterator[Found]:
    for batch in batch_names(corpus):
        table = _decided_rows(corpus, batch, "decisions", name)
        # what a closing decided stands, and the decision that was made first is its link
        for row in table.to_pylist() if table else ():
            yield Found("decision", corpus.name, batch, _as_it_stands(corpus, batch, row))
    if name in ready_batches(corpus):
        yield Found("batch", corpus.name, name)
    if _HASH.fullmatch(name):
        hashes = {sha256 for made in read_deployments(corpus) for sha256 in made.certificates}
        hashes |= {_document_hash(item) for item in _issued(corpus)}
        for sha256 in sorted(hashes):
            if sha256.startswith(name):
                yield Found("certificate", corpus.name, sha256)


def _as_it_stands(corpus: Corpus, batch: str, row: _Row) -> _Row:
    """Return a decision with what became of it, where it was provisional."""
    if row["decision"] != PROVISIONAL:
        return row
    home, name = draw_of(corpus, batch), row["trajectory_id"]
    closing = closing_of(corpus, home) if home else None
    closed = _rows(corpus, closing.content.objects["closed"], name) if closing else None
    if closed:
        row.update(closed.to_pylist()[0])
    elif home is not None and (not home or name not in drawn_runs(corpus, home)):
        # no threshold of the draw decides it
        row["decision"], row["asked"] = "human", row["asked"] or "undecided"
    return row


def walk(store: Store, found: Found) -> Link:
    """Trace what was found to its source files, comparing every link with what is stored now."""
    corpus = Corpus(store, found.corpus)
    if found.kind == "certificate":
        return certificate_link(corpus, found.name)
    if found.row is not None:
        return _decision_link(corpus, found.name, found.row)
    made = corpus.store.last(corpus.name, BatchRecord, found.name)
    hashes = made.content.certificates if made else ()
    certificates = [certificate_link(corpus, sha256) for sha256 in hashes]
    return batch_link(corpus, found.name, extra=certificates)


def certificate_link(corpus: Corpus, sha256: str) -> Link:
    """Return a certificate: the object if it decided, else from its judge's documents."""
    deployed = _was_deployed(corpus, sha256)
    name = f"{sha256[:12]} ({'' if deployed else 'not '}deployed)"
    item = _stored_certificate(corpus, sha256)
    if item is None:
        if deployed:
            return object_link(corpus.store, "certificate", name, sha256)
        detail = "it is nowhere in the data root any more."
        return compared("certificate", name, sha256, "", detail=detail)
    threshold = "none" if item.threshold is None else shortest(item.threshold)
    detail = (
        f"{item.side} at {item.alpha:g}, δ={item.delta:g}, threshold {threshold}, of "
        f"{item.provenance.get('judge', 'a score table')}"
    )
    links = certificate_links(corpus.store, item)
    return compared("certificate", name, sha256, item.sha256, detail=detail, links=links)


def _was_deployed(corpus: Corpus, sha256: str) -> bool:
    return any(sha256 in made.certificates for made in read_deployments(corpus))


def batch_link(
    corpus: Corpus, batch: str, *, sources: Sequence[str] | None = None, extra: Sequence[Link] = ()
) -> Link:
    """Return a batch with its tables and source files, by default all of these."""
    store, about = corpus.store, received(corpus, batch)
    files = store.objects.get_json(about.objects["files"])
    read = [
        source_link(about.paths, name, sha256)
        for name, sha256 in sorted(files.items())
        if sources is None or name in sources
    ]
    links = [
        object_link(store, "runs", f"{batch} runs", about.objects["runs"], read),
        object_link(store, "table", f"{batch} identities", about.objects["identities"]),
        object_link(store, "draw", f"{batch} draw", about.objects["draw"]),
    ]
    made = store.last(corpus.name, BatchRecord, batch)
    if made is None:
        return unhashed("batch", batch, f"{about.rows} runs that wait to be decided", links)
    record = made.content
    links += [
        *(
            object_link(store, kind, f"{batch} {name}", record.objects[name])
            for kind, name in (
                ("table", "decisions"),
                ("table", "scores"),
                ("comparison", "comparison"),
            )
        ),
        *extra,
        *_audit_links(corpus, batch),
    ]
    refusal = "" if record.refusal is None else record.refusal.sentence
    detail = (
        f"{record.rows} runs, decided under deployment {record.deployment} at {made.time}, event "
        f"{made.sequence} {refusal}"
    )
    return unhashed("batch", batch, detail.strip(), links)


def _decision_link(corpus: Corpus, batch: str, row: _Row) -> Link:
    certificates = [certificate_link(corpus, sha256) for sha256 in _certificate_hashes(row)]
    given = f"{row['decision']} {row['reason']}"
    try:
        expected = _decided_again(corpus, batch, row)
    except CertifyError as error:
        expected = str(error)
    score = "no score" if row["score"] is None else f"score {row['score']:.6g}"
    detail = (
        f"{row['decision']} ({row['reason']}), {score} of {row['judge'] or 'no judge'}, task "
        f"{row['task_id']}, agent {row['agent']}"
        + (f", asked as {row['asked']}" if row["asked"] else "")
    )
    return Link(
        "decision",
        str(row["trajectory_id"]),
        "told" if expected is None else "holds" if expected == given else "differs",
        expected or "",
        given,
        detail,
        must=expected is not None,
        links=(*certificates, batch_link(corpus, batch, sources=[str(row["source_file"])])),
    )


def _audit_links(corpus: Corpus, batch: str) -> list[Link]:
    """Return the audit of the provisional runs of a batch, with what closed it; none without."""
    draw = draw_of(corpus, batch)
    try:
        audit = BatchAudit.load(corpus, draw) if draw else None
    except CertifyError as error:
        return [Link("audit", str(draw), "differs", detail=str(error))]
    if audit is None or not draw:
        return []
    links = [unhashed("seed", draw, f"{audit.record.seed}")]
    if audit.closing is not None:
        made = [
            object_link(corpus.store, "table", f"{draw} closed", audit.closing.objects["closed"])
        ]
        links.append(unhashed("closing", draw, audit.promise, made))
    return [unhashed("audit", draw, audit.sentence(), links)]


def _settled_again(corpus: Corpus, batch: str, row: _Row) -> str:
    """Decide a run of an audit again by the labels that closed it."""
    audit = BatchAudit.load(corpus, draw_of(corpus, batch) or batch)
    if audit is None or audit.closing is None:
        return "no closing"
    rows = settled_rows(audit).set_index("trajectory_id")
    found = rows.loc[row["trajectory_id"]]
    return f"{found['decision']} {found['reason']}"


def _certificate_hashes(row: _Row) -> list[str]:
    return [sha256 for sha256 in str(row["certificate_sha256"]).split(";") if sha256]


def _decided_again(corpus: Corpus, batch: str, row: _Row) -> str | None:
    """Decide the run again by its stored score; None where no threshold decided it."""
    from certify_assets.certificates import decide

    if row["reason"] in CLOSED:
        return _settled_again(corpus, batch, row)
    items = [_stored_certificate(corpus, sha256) for sha256 in _certificate_hashes(row)]
    kept = [item for item in items if item is not None]
    if not kept or len(kept) < len(items) or row["reason"] in (*NOT_COVERED, "changed_run"):
        return None
    table = _decided_rows(corpus, batch, "scores", str(row["trajectory_id"]))
    if not table:
        return "no stored score"
    score = table.column("score")[0].as_py()
    again = decide(kept, [math.nan if score is None else score])
    return f"{again.decisions[0]} {again.reasons[0]}"


def _stored_certificate(corpus: Corpus, sha256: str) -> Certificate | None:
    """Return a certificate that decided, or that a judge or recertification has now."""
    from certify_assets.certificates import Certificate

    try:
        if _was_deployed(corpus, sha256):
            return Certificate.from_json(corpus.store.objects.get(sha256))
        documents = [item for item in _issued(corpus) if _document_hash(item) == sha256]
        return Certificate.from_dict(documents[0]) if documents else None
    except CertifyError:
        return None


def _issued(corpus: Corpus) -> list[Any]:
    numbers = corpus.store.names(operation_key(corpus.name, "recertifications"))
    keys = [
        *(own_key(corpus.name, judge) for judge in corpus.store.names("judges")),
        *(
            operation_key(corpus.name, "recertifications", number, "certificates.json")
            for number in numbers
        ),
    ]
    return [
        item
        for key in keys
        if corpus.store.exists(key)
        for item in corpus.store.read_json(key)["certificates"]
    ]


def certificate_links(store: Store, certificate: Certificate) -> list[Link]:
    """Return what a certificate of the platform depends on."""
    hashes = certificate.provenance
    name, judge_name = hashes.get("corpus", ""), hashes.get("judge", "")
    if not name or not judge_name:
        detail = "the certificate was not issued by the platform, so it names no model."
        return [unhashed("scores", "a score table of its own", detail)]
    corpus = Corpus(store, name)
    deployments = [
        item for item in read_deployments(corpus) if certificate.sha256 in item.certificates
    ]
    # what decided never changes, whatever was delivered or trained since
    stored = JudgedCorpus(corpus, judge_name)
    judge = deployments[-1].judge_on(corpus) if deployments else stored
    corpus, store = judge.corpus, judge.store
    found = [_recertification_link(corpus, hashes)] if "recertification" in hashes else []
    found += [
        file_link(
            store,
            "scores",
            judge.key("scores.parquet"),
            hashes["scores_sha256"],
            detail=f"split={hashes.get('split', 'cal')} certified",
        ),
        model_link(judge, hashes["adapter_sha256"]),
        manifest_link(corpus, hashes["manifest_sha256"]),
        trajectories_link(corpus, hashes["trajectories_sha256"]),
    ]
    if judge.is_trained:
        read = judge.renderer.sha256
        found.append(compared("renderer", "what the judge reads", hashes["renderer_sha256"], read))
    if pool := certificate.inputs.get("pool"):
        key = judge.key(CERTIFICATES)
        if number := hashes.get("recertification"):
            key = recertification_key(corpus.name, int(number), CERTIFICATES)
        stored_pool = store.read_json(key).get("pool") if store.exists(key) else None
        there = _document_hash(stored_pool) if stored_pool else ""
        detail = f"{pool['rows']} runs, {pool['origin']}"
        found.append(compared("pool", key, hashes.get(PROVENANCE, ""), there, detail=detail))
    if registration := hashes.get("registration"):
        found.append(object_link(store, "registration", "plan", registration))
    return found + [
        unhashed("deployment", f"number {item.number}", f"{item.judge}, {item.time}")
        for item in deployments
    ]


def model_link(judge: JudgedCorpus, expected: str) -> Link:
    """Return the model of a judge by the hash of its files, and what its training began with."""
    if not judge.is_trained:
        return compared("model", judge.key(), expected, "")
    try:
        record = judge.stored_artifact
        found = judge.family.fingerprint(judge, record)
        for name in judge.store.names(judge.key("adapter")):
            with judge.store.as_file(judge.key("adapter", name)):
                pass  # it is compared with its hash
    except CertifyError as error:
        return Link("model", judge.key(), "differs", expected, "", str(error))
    detail = f"SFT: {record.sft_trajectories} runs of {record.sft_tasks} tasks, seed {record.seed}"
    links = _training_links(judge, record.details)
    return compared("model", judge.key(), expected, found, detail=detail, links=links)


def _training_links(judge: JudgedCorpus, document: Mapping[str, Any]) -> list[Link]:
    found, store = [], judge.store
    before = judge.spec.upstream
    if before and "start_sha256" in document:
        found.append(model_link(judge.origin(before), document["start_sha256"]))
    if harvest := document.get("harvest"):
        start, gate = judge.origin(harvest["start"]), judge.key("harvest.json")
        links = [
            compared("gate", gate, harvest["gate_sha256"], _stored_hash(store, gate)),
            file_link(store, "scores", start.key("scores.parquet"), harvest["start_scores_sha256"]),
            model_link(start, harvest["start_adapter_sha256"]),
        ]
        detail = f"{harvest['size']} pseudo-labels"
        key = judge.key("harvest.parquet")
        found.append(
            file_link(store, "harvest", key, harvest["sha256"], detail=detail, links=links)
        )
    for source in document.get("transfer", {}).get("sources", []):
        found.append(manifest_link(Corpus(store, source["corpus"]), source["manifest_sha256"]))
    return found


def manifest_link(corpus: Corpus, expected: str) -> Link:
    """Return the split manifest of a corpus by the hash of its content."""
    key = corpus.key("splits/manifest.json")
    try:
        found = corpus.stored_manifest.content_sha256() if corpus.store.exists(key) else ""
    except CertifyError as error:
        return Link("manifest", key, "differs", expected, "", str(error))
    return compared("manifest", key, expected, found)


def trajectories_link(corpus: Corpus, expected: str) -> Link:
    """Return the trajectories of a corpus with their import and source files."""
    store, key = corpus.store, corpus.key("trajectories.parquet")
    imported = corpus.key("import.json")
    if not store.exists(imported):
        links = [compared("import", imported, expected, "")]
        return file_link(store, "trajectories", key, expected, links=links)
    about = store.read_json(imported)
    sources = [
        source_link(corpus.config.paths, name, sha256)
        for name, sha256 in sorted(about["files"].items())
    ]
    found, detail = str(about["sha256"]), f"read as {about['format']}"
    link = compared("import", imported, expected, found, detail=detail, links=sources)
    return file_link(store, "trajectories", key, expected, links=[link])


def source_link(roots: Sequence[str], name: str, expected: str) -> Link:
    """Return a source file in the folder it was read from."""
    # Sources are outside of the data root: a missing one is reported and breaks nothing, a changed
    # one does.
    parts = Path(name).parts
    if ".." in parts or Path(name).is_absolute():
        return Link("source", name, "differs", expected, "", "the name leads out of its folder.")
    for root in roots:
        if is_url(root):
            continue
        # the name begins with the last part of the path that was given, or with the last two
        for parent in list(Path(root).parents)[:2]:
            path = parent / name
            if path.is_file() and path.is_relative_to(parent):
                return compared("source", name, expected, sha256_file(path))
            for end in range(1, len(parts)):
                archive = parent / Path(*parts[:end])
                if archive.is_file() and archive.is_relative_to(parent):
                    detail = "a member of an archive that is there and is not opened."
                    return Link("source", name, "told", expected, "", detail, must=False)
    where = "it is not where it was read" if roots else "its runs came with the package"
    detail = f"{where}; its hash is on record."
    return Link("source", name, "missing", expected, "", detail, must=False)


def _recertification_link(corpus: Corpus, hashes: Mapping[str, str]) -> Link:
    """Return the rows of a recertification with the labels and decisions they were made of."""
    number, store = int(hashes["recertification"]), corpus.store
    key = recertification_key(corpus.name, number, "recertification.json")
    about = store.read_json(key) if store.exists(key) else {}
    last, batches = int(about.get("labels", {}).get("sequence", 0)), about.get("batches", {})
    named = hashes.get("labels_sha256", "")
    # later labels change nothing of what the certificate depends on
    read = named if corpus.store.holds(corpus.name, last, named) else ""
    decided = [
        object_link(store, "table", f"{name} decisions", sha256)
        for name, sha256 in sorted(batches.items())
    ]
    links = [
        compared("labels", f"up to event {last}", named, read),
        compared(
            "batches",
            key,
            hashes.get("decisions_sha256", ""),
            _document_hash(batches) if about else "",
            detail=f"{len(batches)} were decided",
            links=decided,
        ),
    ]
    return file_link(
        store,
        "audit_sample",
        recertification_key(corpus.name, number, "scores.parquet"),
        str(about.get("scores_sha256", "")),
        detail=f"recertification {number}: CAL and the audit sample",
        links=links,
    )


def _document_hash(document: Any) -> str:
    return sha256_bytes(canonical_json(document))


def _stored_hash(store: Store, key: str) -> str:
    return _document_hash(store.read_json(key)) if store.exists(key) else ""


def _decided_rows(corpus: Corpus, batch: str, table: str, trajectory: str) -> pa.Table:
    """Return the rows of a run in a table with which a batch was decided."""
    return _rows(corpus, decided(corpus, batch).content.objects[table], trajectory)


def _rows(corpus: Corpus, sha256: str, trajectory: str) -> pa.Table:
    """Return the rows of a run in a table, without loading the others."""
    import pyarrow.parquet as pq

    with corpus.store.objects.as_file(sha256) as path:
        return pq.read_table(path, partitioning=None, filters=[("trajectory_id", "=", trajectory)])
