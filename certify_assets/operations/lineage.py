"""Lineage of a decision, batch or certificate: what each is made of, named by hashes."""

# decision → certificate → scores → model → harvest → splits → import → source files

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from certify_assets.operations.batches import (
    BatchRecord,
    DrawnBatch,
    batch_names,
    closing_of,
    decided,
    draw_of,
    known_runs,
    ready_batches,
    received,
)
from certify_assets.operations.certifier import judges_with_certificates, own_key
from certify_assets.operations.decisions import CLOSED, NOT_COVERED, decision_of
from certify_assets.operations.deployment import read_deployments
from certify_assets.operations.recertification_record import (
    CERTIFICATES,
    load_recertification,
    recertification_key,
    recertifications,
)
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.store import Store
from certify_assets.words import WORDS

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


def follow(store: Store, name: str, corpus: str | None = None) -> tuple[str, list[Link]]:
    """Trace what a trajectory_id, a batch, or the start of a certificate's hash names.

    Every object is read, which verifies its hash.

    Returns
    -------
    tuple
        The corpus, and what has the name there; a run that came again has several decisions.
    """
    store = store.now()
    corpora = [corpus] if corpus else sorted({*registered_corpora(store), *store.corpora()})
    found = {one: links for one in corpora if (links := [*_named(Corpus(store, one), name)])}
    if not found:
        where = "" if corpus is None else f" in {corpus}"
        raise InputError(
            f"Nothing{where} is called {name!r}. Give a trajectory id, a batch, or the first 8 "
            "digits of a certificate's hash."
        )
    if len(found) > 1:
        raise InputError(f"{name!r} is in {', '.join(found)}. Choose one with --corpus.")
    return found.popitem()


def _named(corpus: Corpus, name: str) -> Iterator[Link]:
    query = sa.select(known_runs.c.batch).where(known_runs.c.corpus == corpus.name)
    holding = {row.batch for row in corpus.store.indexed(query, known_runs.c.run, [name])}
    for batch in sorted(holding & {*batch_names(corpus)}):
        yield _decision(corpus, batch, name)
    if name in ready_batches(corpus):
        yield _batch(corpus, name)
    if _HASH.fullmatch(name):
        for sha256 in sorted({*_deployed(corpus), *_issued(corpus)}):
            if sha256.startswith(name):
                yield _certificate(corpus, sha256)


def _compared(
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
        store.objects.require(sha256)
        return sha256

    return _compared(kind, name, sha256, read, **about)


def _decision(corpus: Corpus, batch: str, run: str) -> Link:
    row = decision_of(corpus, batch, run)
    hashes = [sha256 for sha256 in str(row["certificate_sha256"]).split(";") if sha256]
    judge, score = row["judge"] or "no judge", row["score"]
    detail = (
        f"{row['decision']} ({row['reason']}), score {score:.6g} of {judge}, task "
        f"{row['task_id']}, agent {row['agent']}"
    )
    status = "told"
    # what neither a threshold nor a certificate decided cannot be decided again
    if hashes and row["reason"] not in (*NOT_COVERED, *CLOSED, "changed_run"):
        try:
            again = _decided_again(corpus, batch, run, hashes)
            status = "holds" if again == (row["decision"], row["reason"]) else "differs"
        except CertifyError:
            status = "differs"
    links = [_certificate(corpus, sha256) for sha256 in hashes]
    source = _batch(corpus, batch, str(row["source_file"]))
    return Link("decision", run, status, "", detail, (*links, source))


def _decided_again(corpus: Corpus, batch: str, run: str, hashes: Sequence[str]) -> tuple[str, str]:
    objects = corpus.store.objects
    certificates = [Certificate.from_json(objects.get(sha256)) for sha256 in hashes]
    scores = objects.get_table(decided(corpus, batch).content.objects["scores"])
    (score,) = scores.loc[scores["trajectory_id"] == run, "score"]
    again = decide(certificates, [float(score)])
    return again.decisions[0], again.reasons[0]


def _batch(corpus: Corpus, batch: str, source: str = "") -> Link:
    """Return a batch with its tables: all of it, or what the decision on a run depends on."""
    store, about = corpus.store, received(corpus, batch)
    read = [
        _source(about.paths, name, sha256)
        for name, sha256 in sorted(store.objects.get_json(about.objects["files"]).items())
        if source in ("", name)
    ]
    links = [
        _object(store, "runs", f"{batch} runs", about.objects["runs"], links=read),
        _object(store, "table", f"{batch} identities", about.objects["identities"]),
        _object(store, "draw", f"{batch} draw", about.objects["draw"]),
    ]
    made = store.last(corpus.name, BatchRecord, batch)
    if made is None:
        detail = f"{about.rows:,} runs that wait to be decided"
        return Link("batch", batch, "told", "", detail, tuple(links))
    record = made.content
    for name, kind in (("decisions", "table"), ("scores", "table"), ("comparison", "comparison")):
        links.append(_object(store, kind, f"{batch} {name}", record.objects[name]))
    if not source:
        links += [_certificate(corpus, sha256) for sha256 in record.certificates]
    links += _audit(corpus, batch)
    detail = f"{record.rows:,} runs, decided under deployment {record.deployment} at {made.time}"
    return Link("batch", batch, "told", "", detail, tuple(links))


def _audit(corpus: Corpus, batch: str) -> Iterator[Link]:
    """Iterate over the draw of the provisional runs of a batch and what closed it."""
    if draw := draw_of(corpus, batch):
        drawn = corpus.last(DrawnBatch, draw)
        assert drawn is not None
        audit, seed = drawn.content.objects["audit"], drawn.content.seed
        yield _object(corpus.store, "audit", draw, audit, detail=f"seed {seed}")
        if closing := closing_of(corpus, draw):
            closed = closing.content.objects["closed"]
            yield _object(corpus.store, "closing", draw, closed, detail=closing.content.state)


def _deployed(corpus: Corpus) -> set[str]:
    """Return the hashes of the certificates that decided, each of which is an object."""
    return {sha256 for made in read_deployments(corpus) for sha256 in made.certificates}


def _issued(corpus: Corpus) -> dict[str, Certificate]:
    """Return the certificates that judges and recertifications have now, by their hashes."""
    keys = [own_key(corpus.name, judge) for judge in judges_with_certificates(corpus)]
    keys += [record.certificates_key for record in recertifications(corpus)]
    documents = [
        item for key in keys for item in _stored(corpus.store, key).get("certificates", [])
    ]
    return {_hash(item): Certificate.from_dict(item) for item in documents}


def _certificate(corpus: Corpus, sha256: str) -> Link:
    """Return a certificate: the object if it decided, else from its judge's documents."""
    store, deployed = corpus.store, sha256 in _deployed(corpus)
    name = f"{sha256[:12]} ({'' if deployed else 'not '}deployed)"
    if deployed:
        link = _object(store, "certificate", name, sha256)
        if link.broken:
            return link
        item = Certificate.from_json(store.objects.get(sha256))
    else:
        item = _issued(corpus)[sha256]
    threshold = "none" if item.threshold is None else shortest(item.threshold)
    detail = f"{WORDS[item.side]} at {item.alpha:g}, δ = {item.delta:g}, threshold {threshold}"
    return Link("certificate", name, "holds", sha256, detail, tuple(_made_of(store, item)))


def _made_of(store: Store, certificate: Certificate) -> Iterator[Link]:
    """Iterate over what a certificate of the platform depends on."""
    hashes = certificate.provenance
    corpus = Corpus(store, hashes["corpus"])
    made = [item for item in read_deployments(corpus) if certificate.sha256 in item.certificates]
    # what decided never changes, whatever was delivered or trained since
    judge = made[-1].judge_on(corpus) if made else JudgedCorpus(corpus, hashes["judge"])
    key = own_key(corpus.name, judge.name)
    if number := int(hashes.get("recertification", 0)):
        key = recertification_key(corpus.name, number, CERTIFICATES)
        yield _recertification(corpus, number, hashes["labels_sha256"])
    yield _object(store, "scores", judge.key("scores.parquet"), hashes["scores_sha256"])
    yield model_link(judge, hashes["adapter_sha256"])
    yield _manifest(judge.corpus, hashes["manifest_sha256"])
    yield _trajectories(judge.corpus, hashes["trajectories_sha256"])
    reads = "what the judge reads"
    yield _compared("renderer", reads, hashes["renderer_sha256"], lambda: judge.renderer.sha256)
    if pool := certificate.inputs.get("pool"):
        found = _stored(judge.store, key).get("pool")
        detail = f"{pool['rows']} runs, {pool['origin']}"
        yield _compared("pool", key, hashes[PROVENANCE], lambda: _hash(found), detail=detail)
    if registration := hashes.get("registration"):
        yield _object(store, "registration", "plan", registration)
    for item in made:
        about = f"{item.judge}, {item.time}"
        yield Link("deployment", f"number {item.number}", "told", detail=about)


def model_link(judge: JudgedCorpus, sha256: str) -> Link:
    """Return the model of a judge by the hash of its files, and what its training began with."""
    if not judge.is_trained:
        return Link("model", judge.key(), "missing", sha256)
    record = judge.stored_artifact

    def fingerprint() -> str:
        for found in judge.store.hashes([judge.key("adapter")]).values():
            judge.store.objects.require(found)
        return judge.maker.fingerprint(judge, record)

    detail = (
        f"SFT: {record.sft_trajectories:,} runs of {record.sft_tasks:,} tasks, seed {record.seed}"
    )
    links = [*_trained_from(judge, record)]
    return _compared("model", judge.key(), sha256, fingerprint, detail=detail, links=links)


def _trained_from(judge: JudgedCorpus, record: JudgeRecord) -> Iterator[Link]:
    models = {name: model_link(judge.origin(name), sha) for name, sha in record.starts.items()}
    if harvest := record.detail("harvest"):
        before = models.pop(harvest["start"])
        key = judge.key("harvest.parquet")
        yield _object(judge.store, "harvest", key, harvest["sha256"], links=[before])
    yield from models.values()
    for source in record.detail("transfer").get("sources", []):
        yield _manifest(Corpus(judge.store, source["corpus"]), source["manifest_sha256"])


def _manifest(corpus: Corpus, sha256: str) -> Link:
    """Return the split manifest of a corpus by the hash of its content."""
    key = corpus.key("splits/manifest.json")
    stored = corpus.store.exists(key)
    return _compared(
        "manifest", key, sha256, lambda: corpus.stored_manifest.sha256 if stored else ""
    )


def _trajectories(corpus: Corpus, sha256: str) -> Link:
    """Return the trajectories of a corpus with their import and source files."""
    key, about = corpus.key("import.json"), corpus.import_summary
    sources = [
        _source(corpus.config.paths, name, digest) for name, digest in sorted(about.files.items())
    ]
    detail = f"read as {about.format}"
    made = _compared("import", key, sha256, lambda: about.sha256, detail=detail, links=sources)
    stored = corpus.key("trajectories.parquet")
    return _object(corpus.store, "trajectories", stored, sha256, links=[made])


def _source(roots: Sequence[str], name: str, sha256: str) -> Link:
    """Return a source file in the folder it was read from: a missing one breaks nothing."""
    # the name begins with the last part of the path that was given, or with the last two
    parents = (parent for root in roots for parent in list(Path(root).parents)[:2])
    if path := next((parent / name for parent in parents if (parent / name).is_file()), None):
        return _compared("source", name, sha256, lambda: sha256_file(path))
    where = "no longer where it was read" if roots else "its runs came with the package"
    return Link("source", name, "missing", sha256, f"{where}; its hash {sha256[:12]} is on record.")


def _recertification(corpus: Corpus, number: int, labels: str) -> Link:
    """Return the rows of a recertification with the labels and decisions they were made of."""
    store, about = corpus.store, load_recertification(corpus, number)
    last = about.labels.sequence
    # later labels change nothing of what the certificate depends on
    held = labels if store.holds(corpus.name, last, labels) else ""
    links = [_compared("labels", f"up to event {last}", labels, lambda: held)]
    links += [
        _object(store, "table", f"{name} decisions", sha256)
        for name, sha256 in sorted(about.batches.items())
    ]
    name = f"recertification {number}"
    return _object(store, "audit_sample", name, about.scores_sha256, links=links)


def _stored(store: Store, key: str) -> dict[str, Any]:
    return dict(store.read_json(key)) if store.exists(key) else {}


def _hash(document: Any) -> str:
    return sha256_bytes(canonical_json(document))
