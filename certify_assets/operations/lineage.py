"""Lineage of a decision, batch or certificate: what each is made of, named by hashes."""

# decision → certificate → scores → model → harvest → splits → import → source files

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from certify_assets.certificates import Certificate, decide
from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, sha256_bytes, sha256_file, shortest
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.pool import PROVENANCE
from certify_assets.judges.record import JudgeRecord
from certify_assets.operations.batch_audit import BatchAudit, settled_rows
from certify_assets.operations.batches import (
    BatchRecord,
    batch_names,
    decided,
    draw_of,
    known_runs,
    operation_key,
    ready_batches,
    received,
)
from certify_assets.operations.certifier import own_key
from certify_assets.operations.decisions import CLOSED, NOT_COVERED, decision_of
from certify_assets.operations.deployment import read_deployments
from certify_assets.operations.recertification_record import (
    CERTIFICATES,
    DOCUMENT,
    recertification_key,
)
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.store import Store

_HASH = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True)
class Link:
    """One link of a lineage."""

    kind: str
    name: str  # key in the data root, or another name
    # holds: it has the hash by which it is named; differs: another one; missing: it is not there;
    # told: it is named by no hash
    status: str
    sha256: str = ""  # by which it is named
    detail: str = ""
    links: tuple[Link, ...] = ()  # what it depends on

    @property
    def broken(self) -> bool:
        """Whether this link does not hold and should: the data root owns no source file."""
        return self.status == "differs" or (self.status == "missing" and self.kind != "source")

    def walk(self) -> Iterator[Link]:
        """Iterate over this link and all below it."""
        yield self
        for link in self.links:
            yield from link.walk()


@dataclass(frozen=True)
class Found:
    """What an id names: a decision, a batch or a certificate."""

    kind: str
    corpus: str
    name: str  # run, batch, or hash of the certificate
    batch: str = ""  # of a decision


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
    if len(places := sorted({item.corpus for item in found})) > 1:
        raise InputError(f"{name!r} is in {', '.join(places)}; choose one with --corpus.")
    # a run that came again has several decisions
    if len(names := sorted({f"{item.kind} {item.name}" for item in found})) > 1:
        raise InputError(f"{name!r} names {', '.join(names)}; give more of it.")
    return found


def _named(corpus: Corpus, name: str) -> Iterator[Found]:
    query = sa.select(known_runs.c.batch).where(known_runs.c.corpus == corpus.name)
    holding = {row.batch for row in corpus.store.indexed(query, known_runs.c.run, [name])}
    for batch in sorted(holding & {*batch_names(corpus)}):
        yield Found("decision", corpus.name, name, batch)
    if name in ready_batches(corpus):
        yield Found("batch", corpus.name, name)
    if _HASH.fullmatch(name):
        for sha256 in sorted({*_deployed(corpus), *_issued(corpus)}):
            if sha256.startswith(name):
                yield Found("certificate", corpus.name, sha256)


def walk(store: Store, found: Found) -> Link:
    """Trace what was found to its source files; every object is read, which verifies its hash."""
    corpus = Corpus(store, found.corpus)
    if found.kind == "certificate":
        return _certificate(corpus, found.name)
    if found.kind == "decision":
        return _decision(corpus, found.batch, found.name)
    made = corpus.store.last(corpus.name, BatchRecord, found.name)
    return _batch(corpus, found.name, made.content.certificates if made else ())


def _link(
    kind: str,
    name: str,
    sha256: str,
    read: Callable[[], str],
    *,
    detail: str = "",
    links: Sequence[Link] = (),
) -> Link:
    """Return a link whose hash is read again: "" means that it is gone."""
    status = "differs"
    try:
        found = read()
        status = "missing" if not found else "holds" if found == sha256 else "differs"
    except MissingObjectError as error:
        status, detail = "missing", str(error)
    except CertifyError as error:
        detail = str(error)
    return Link(kind, name, status, sha256, detail, tuple(links))


def _object(store: Store, kind: str, name: str, sha256: str, **about: Any) -> Link:
    """Return the link of an object, which is named by its hash."""

    def read() -> str:
        with store.objects.as_file(sha256):
            return sha256

    return _link(kind, name, sha256, read, **about)


def _told(kind: str, name: str, detail: str = "", links: Sequence[Link] = ()) -> Link:
    return Link(kind, name, "told", detail=detail, links=tuple(links))


def _decision(corpus: Corpus, batch: str, run: str) -> Link:
    row = decision_of(corpus, batch, run)
    hashes = [sha256 for sha256 in str(row["certificate_sha256"]).split(";") if sha256]
    given = f"{row['decision']} {row['reason']}"
    try:
        again = _decided_again(corpus, batch, row, hashes)
    except CertifyError as error:
        again = str(error)
    score = "no score" if row["score"] != row["score"] else f"score {row['score']:.6g}"
    detail = (
        f"{row['decision']} ({row['reason']}), {score} of {row['judge'] or 'no judge'}, task "
        f"{row['task_id']}, agent {row['agent']}"
        + (f", asked as {row['asked']}" if row["asked"] else "")
    )
    status = "told" if again is None else "holds" if again == given else "differs"
    source = _batch(corpus, batch, (), sources=[str(row["source_file"])])
    links = (*(_certificate(corpus, sha256) for sha256 in hashes), source)
    return Link("decision", run, status, detail=detail, links=links)


def _decided_again(
    corpus: Corpus, batch: str, row: Mapping[str, Any], hashes: Sequence[str]
) -> str | None:
    """Decide a run again; None where neither a threshold nor the labels of a draw decided it."""
    if row["reason"] in CLOSED:
        audit = BatchAudit.load(corpus, draw_of(corpus, batch) or batch)
        if audit is None or audit.closing is None:
            return "no closing"
        rows = settled_rows(audit).set_index("trajectory_id")
        found = rows.loc[row["trajectory_id"]]
        return f"{found['decision']} {found['reason']}"
    if not hashes or row["reason"] in (*NOT_COVERED, "changed_run"):
        return None
    kept = [Certificate.from_json(corpus.store.objects.get(sha256)) for sha256 in hashes]
    scores = corpus.store.objects.get_table(decided(corpus, batch).content.objects["scores"])
    scores = scores.set_index("trajectory_id")["score"]
    again = decide(kept, [float(scores[row["trajectory_id"]])])
    return f"{again.decisions[0]} {again.reasons[0]}"


def _batch(
    corpus: Corpus,
    batch: str,
    certificates: Sequence[str],
    *,
    sources: Sequence[str] | None = None,
) -> Link:
    """Return a batch with its tables and source files, by default all of these."""
    store, about = corpus.store, received(corpus, batch)
    files = store.objects.get_json(about.objects["files"])
    read = [
        _source(about.paths, name, sha256)
        for name, sha256 in sorted(files.items())
        if sources is None or name in sources
    ]
    links = [
        _object(store, "runs", f"{batch} runs", about.objects["runs"], links=read),
        _object(store, "table", f"{batch} identities", about.objects["identities"]),
        _object(store, "draw", f"{batch} draw", about.objects["draw"]),
    ]
    made = store.last(corpus.name, BatchRecord, batch)
    if made is None:
        return _told("batch", batch, f"{about.rows} runs that wait to be decided", links)
    record = made.content
    for name, kind in (("decisions", "table"), ("scores", "table"), ("comparison", "comparison")):
        links.append(_object(store, kind, f"{batch} {name}", record.objects[name]))
    links += [_certificate(corpus, sha256) for sha256 in certificates]
    links += _audit(corpus, batch)
    detail = (
        f"{record.rows} runs, decided under deployment {record.deployment} at {made.time}, event "
        f"{made.sequence}"
    )
    if record.refusal is not None:
        detail = f"{detail} {record.refusal.sentence}"
    return _told("batch", batch, detail, links)


def _audit(corpus: Corpus, batch: str) -> list[Link]:
    """Return the audit of the provisional runs of a batch, with what closed it; none without."""
    draw = draw_of(corpus, batch)
    try:
        audit = BatchAudit.load(corpus, draw) if draw else None
    except CertifyError as error:
        return [Link("audit", str(draw), "differs", detail=str(error))]
    if audit is None or not draw:
        return []
    links = [_told("seed", draw, f"{audit.record.seed}")]
    if audit.closing is not None:
        sha256, name = audit.closing.objects["closed"], f"{draw} closed"
        links.append(_object(corpus.store, "closing", name, sha256, detail=audit.promise))
    return [_told("audit", draw, audit.sentence(), links)]


def _deployed(corpus: Corpus) -> set[str]:
    """Return the hashes of the certificates that decided, each of which is an object."""
    return {sha256 for made in read_deployments(corpus) for sha256 in made.certificates}


def _issued(corpus: Corpus) -> dict[str, Certificate]:
    """Return the certificates that judges and recertifications have now, by their hashes."""
    folder = operation_key(corpus.name, "recertifications")
    keys = [own_key(corpus.name, judge) for judge in corpus.store.names("judges")]
    keys += [f"{folder}/{number}/{CERTIFICATES}" for number in corpus.store.names(folder)]
    documents = [
        item
        for key in keys
        if corpus.store.exists(key)
        for item in corpus.store.read_json(key)["certificates"]
    ]
    return {_hash(item): Certificate.from_dict(item) for item in documents}


def _certificate(corpus: Corpus, sha256: str) -> Link:
    """Return a certificate: the object if it decided, else from its judge's documents."""
    deployed, item = sha256 in _deployed(corpus), None
    name = f"{sha256[:12]} ({'' if deployed else 'not '}deployed)"
    link = Link("certificate", name, "holds", sha256)
    if deployed:
        link = _object(corpus.store, "certificate", name, sha256)
        if link.status == "holds":
            item = Certificate.from_json(corpus.store.objects.get(sha256))
    elif (item := _issued(corpus).get(sha256)) is None:
        return replace(link, status="missing", detail="it is nowhere in the data root any more.")
    if item is None:
        return link
    threshold = "none" if item.threshold is None else shortest(item.threshold)
    detail = (
        f"{item.side} at {item.alpha:g}, δ={item.delta:g}, threshold {threshold}, of "
        f"{item.provenance.get('judge', 'a score table')}"
    )
    return replace(link, detail=detail, links=tuple(_made_of(corpus.store, item)))


def _made_of(store: Store, certificate: Certificate) -> Iterator[Link]:
    """Iterate over what a certificate of the platform depends on."""
    hashes = certificate.provenance
    name, judge_name = hashes.get("corpus", ""), hashes.get("judge", "")
    if not name or not judge_name:
        detail = "the certificate was not issued by the platform, so it names no model."
        yield _told("scores", "a score table of its own", detail)
        return
    corpus, key = Corpus(store, name), own_key(name, judge_name)
    made = [item for item in read_deployments(corpus) if certificate.sha256 in item.certificates]
    # what decided never changes, whatever was delivered or trained since
    judge = made[-1].judge_on(corpus) if made else JudgedCorpus(corpus, judge_name)
    if number := int(hashes.get("recertification", 0)):
        key = recertification_key(name, number, CERTIFICATES)
        yield _recertification(corpus, number, hashes)
    detail, scores = f"split={hashes.get('split', 'cal')} certified", judge.key("scores.parquet")
    yield _object(store, "scores", scores, hashes["scores_sha256"], detail=detail)
    yield model_link(judge, hashes["adapter_sha256"])
    yield _manifest(judge.corpus, hashes["manifest_sha256"])
    yield _trajectories(judge.corpus, hashes["trajectories_sha256"])
    if judge.is_trained:
        reads = "what the judge reads"
        yield _link("renderer", reads, hashes["renderer_sha256"], lambda: judge.renderer.sha256)
    if pool := certificate.inputs.get("pool"):
        detail = f"{pool['rows']} runs, {pool['origin']}"
        stored = _stored(judge.store, key).get("pool")
        found = _hash(stored) if stored else ""
        yield _link("pool", key, hashes.get(PROVENANCE, ""), lambda: found, detail=detail)
    if registration := hashes.get("registration"):
        yield _object(store, "registration", "plan", registration)
    for item in made:
        yield _told("deployment", f"number {item.number}", f"{item.judge}, {item.time}")


def model_link(judge: JudgedCorpus, sha256: str) -> Link:
    """Return the model of a judge by the hash of its files, and what its training began with."""
    if not judge.is_trained:
        return Link("model", judge.key(), "missing", sha256)
    record = judge.stored_artifact
    detail = f"SFT: {record.sft_trajectories} runs of {record.sft_tasks} tasks, seed {record.seed}"

    def fingerprint() -> str:
        for name in judge.store.names(judge.key("adapter")):
            with judge.store.as_file(judge.key("adapter", name)):
                pass  # it is compared with its hash
        return judge.maker.fingerprint(judge, record)

    links = [*_trained_from(judge, record)]
    return _link("model", judge.key(), sha256, fingerprint, detail=detail, links=links)


def _trained_from(judge: JudgedCorpus, record: JudgeRecord) -> Iterator[Link]:
    store = judge.store
    models = {name: model_link(judge.origin(name), sha) for name, sha in record.starts.items()}
    if harvest := record.detail("harvest"):
        start, gate = judge.origin(harvest["start"]), judge.key("harvest.json")
        links = [
            _link("gate", gate, harvest["gate_sha256"], lambda: _hash(_stored(store, gate))),
            _object(store, "scores", start.key("scores.parquet"), harvest["start_scores_sha256"]),
            models.pop(start.name),
        ]
        detail, key = f"{harvest['size']} pseudo-labels", judge.key("harvest.parquet")
        yield _object(store, "harvest", key, harvest["sha256"], detail=detail, links=links)
    yield from models.values()
    for source in record.detail("transfer").get("sources", []):
        yield _manifest(Corpus(store, source["corpus"]), source["manifest_sha256"])


def _manifest(corpus: Corpus, sha256: str) -> Link:
    """Return the split manifest of a corpus by the hash of its content."""
    key = corpus.key("splits/manifest.json")
    stored = corpus.store.exists(key)
    return _link("manifest", key, sha256, lambda: corpus.stored_manifest.sha256 if stored else "")


def _trajectories(corpus: Corpus, sha256: str) -> Link:
    """Return the trajectories of a corpus with their import and source files."""
    key, stored = corpus.key("import.json"), corpus.key("trajectories.parquet")
    about = _stored(corpus.store, key)
    sources = [
        _source(corpus.config.paths, name, digest)
        for name, digest in sorted(about.get("files", {}).items())
    ]
    detail = f"read as {about['format']}" if about else ""
    read = str(about.get("sha256", ""))
    made = _link("import", key, sha256, lambda: read, detail=detail, links=sources)
    return _object(corpus.store, "trajectories", stored, sha256, links=[made])


def _source(roots: Sequence[str], name: str, sha256: str) -> Link:
    """Return a source file in the folder it was read from: a missing one breaks nothing."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        return Link("source", name, "differs", sha256, "the name leads out of its folder.")
    # the name begins with the last part of the path that was given, or with the last two
    parents = (parent for root in roots for parent in list(Path(root).parents)[:2])
    if path := next((parent / name for parent in parents if (parent / name).is_file()), None):
        return _link("source", name, sha256, lambda: sha256_file(path))
    where = "it is not where it was read" if roots else "its runs came with the package"
    detail = f"{where}; its hash {sha256[:12]} is on record."
    return Link("source", name, "missing", sha256, detail)


def _recertification(corpus: Corpus, number: int, hashes: Mapping[str, str]) -> Link:
    """Return the rows of a recertification with the labels and decisions they were made of."""
    store, key = corpus.store, recertification_key(corpus.name, number, DOCUMENT)
    about = _stored(store, key)
    last, batches = int(about.get("labels", {}).get("sequence", 0)), about.get("batches", {})
    named = hashes.get("labels_sha256", "")
    # later labels change nothing of what the certificate depends on
    held = named if store.holds(corpus.name, last, named) else ""
    links = [_link("labels", f"up to event {last}", named, lambda: held)]
    for name, sha256 in sorted(batches.items()):
        links.append(_object(store, "table", f"{name} decisions", sha256))
    rows = str(about.get("scores_sha256", ""))
    detail = f"recertification {number}: CAL and the audit sample of {len(batches)} batches"
    return _object(store, "audit_sample", key, rows, detail=detail, links=links)


def _stored(store: Store, key: str) -> dict[str, Any]:
    return dict(store.read_json(key)) if store.exists(key) else {}


def _hash(document: Any) -> str:
    return sha256_bytes(canonical_json(document))
