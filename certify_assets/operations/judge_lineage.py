"""What a certificate stands on: scores, adapter and what it was trained from, harvests, splits, trajectories, and the files they came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import SplitManifest
from certify_assets.errors import CertifyError
from certify_assets.files import canonical_json, sha256_bytes, sha256_file
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import renderer
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.operations.layout import batch_key, labels_key, recertification_key
from certify_assets.operations.links import Link, compared, file_link, told
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from certify_assets.certificates import Certificate

__all__ = ["certificate_links", "source_link"]


def certificate_links(store: Store, certificate: Certificate) -> list[Link]:
    """Return what a certificate of the platform stands on, each compared with what is stored now."""
    said = certificate.provenance
    corpus, judge = said.get("corpus", ""), said.get("judge", "")
    if not corpus or not judge:
        return [
            told(
                "scores",
                "a score table of its own",
                "the certificate was not issued by the platform, so it names no adapter.",
            )
        ]
    folder = f"judges/{judge}/{corpus}"
    found = [
        file_link(
            store,
            "scores",
            f"{folder}/scores.parquet",
            said["scores_sha256"],
            detail="split=cal certified",
        ),
        adapter_link(JudgedCorpus(Corpus(store, corpus), judge), said["adapter_sha256"]),
        compared(
            "renderer", "the renderer of this version", said["renderer_sha256"], renderer().sha256
        ),
        manifest_link(Corpus(store, corpus), said["manifest_sha256"]),
        trajectories_link(Corpus(store, corpus), said["trajectories_sha256"]),
    ]
    if "recertification" in said:
        found.insert(0, _recertified(Corpus(store, corpus), said))
    if "parity_sha256" in said:
        found.append(file_link(store, "parity", f"{folder}/parity.json", said["parity_sha256"]))
    if registration := said.get("registration"):
        key = f"ledger/{corpus}.registrations/{registration}.json"
        found.append(compared("registration", key, registration, _document_sha256(store, key)))
    deployed = [
        item
        for item in read_deployments(Corpus(store, corpus))
        if certificate.sha256 in item.certificates
    ]
    return [
        *found,
        *(
            told("deployment", f"number {item.number}", f"{item.judge}, {item.time}")
            for item in deployed
        ),
    ]


def adapter_link(judge: JudgedCorpus, expected: str) -> Link:
    """Return the adapter of a judge by the hash of its files, with what its training started from."""
    folder = judge.key()
    if not judge.store.exists(f"{folder}/adapter.json"):
        return compared("adapter", folder, expected, "")
    try:
        record = judge.stored_artifact
        found = judge.family.fingerprint(judge, record)
        links = list(_started_from(judge, record.details))
    except (CertifyError, KeyError, TypeError, AttributeError) as error:
        return Link("adapter", folder, "differs", expected, "", f"it cannot be read: {error}")
    rows = f"SFT: {record.sft_trajectories} runs of {record.sft_tasks} tasks, seed {record.seed}"
    return compared("adapter", folder, expected, found, detail=rows, links=links)


def _started_from(judge: JudgedCorpus, document: Mapping[str, Any]) -> list[Link]:
    """Return what a training started from: the adapter before it, the harvest with its gate, the corpora of a transfer."""
    found = []
    before = judge.spec.upstream
    if before and "start_sha256" in document:
        found.append(adapter_link(judge.beside(before), document["start_sha256"]))
    folder = judge.key()
    if harvest := document.get("harvest"):
        gate = compared(
            "gate",
            f"{folder}/harvest.json",
            harvest["gate_sha256"],
            _document_sha256(judge.store, f"{folder}/harvest.json"),
        )
        start = harvest["start"]
        scores = file_link(
            judge.store,
            "scores",
            f"judges/{start}/{judge.corpus}/scores.parquet",
            harvest["start_scores_sha256"],
        )
        links = [gate, scores, adapter_link(judge.beside(start), harvest["start_adapter_sha256"])]
        detail = f"{harvest['size']} pseudo-labels"
        found.append(
            file_link(
                judge.store,
                "harvest",
                f"{folder}/harvest.parquet",
                harvest["sha256"],
                detail=detail,
                links=links,
            )
        )
    for source in document.get("transfer", {}).get("sources", []):
        found.append(
            manifest_link(Corpus(judge.store, source["corpus"]), source["manifest_sha256"])
        )
    return found


def manifest_link(corpus: Corpus, expected: str) -> Link:
    """Return the split manifest of a corpus by the hash of what it says."""
    key = corpus.key("splits/manifest.json")
    try:
        found = (
            SplitManifest.from_dict(corpus.store.read_json(key)).content_sha256()
            if corpus.store.exists(key)
            else ""
        )
    except CertifyError as error:
        return Link("manifest", key, "differs", expected, "", str(error))
    return compared("manifest", key, expected, found)


def trajectories_link(corpus: Corpus, expected: str) -> Link:
    """Return the trajectories of a corpus with their import and the files that these were read from."""
    key, imported = corpus.key("trajectories.parquet"), corpus.key("import.json")
    if not corpus.store.exists(imported):
        return file_link(
            corpus.store,
            "trajectories",
            key,
            expected,
            links=[compared("import", imported, expected, "")],
        )
    try:
        about = corpus.store.read_json(imported)
        roots = corpus.config.paths
        sources = [
            source_link(corpus.store, roots, name, sha256)
            for name, sha256 in sorted(about["files"].items())
        ]
        link = compared(
            "import",
            imported,
            expected,
            str(about["sha256"]),
            detail=f"read as {about['format']}",
            links=sources,
        )
    except (CertifyError, KeyError, TypeError, AttributeError) as error:
        link = Link("import", imported, "differs", expected, "", f"it cannot be read: {error}")
    return file_link(corpus.store, "trajectories", key, expected, links=[link])


def source_link(store: Store, roots: Sequence[str], name: str, expected: str) -> Link:
    """Return a source file where it lay when it was read.

    Sources are not the data root's: one that is there no more is told and breaks nothing, one that has other bytes now does.
    """
    parts = Path(name).parts
    if ".." in parts or Path(name).is_absolute():
        return Link("source", name, "differs", expected, "", "the name leads out of its folder.")
    for root in roots:
        if "://" in root:
            continue
        # the name begins with the last part of the path that was given, or with the last two
        for parent in list(Path(root).parents)[:2]:
            path = parent / name
            if path.is_file() and path.is_relative_to(parent):
                return compared("source", name, expected, sha256_file(path))
    where = "it is not where it was read" if roots else "its runs came with the package"
    return Link(
        "source", name, "missing", expected, "", f"{where}; its hash is on record.", must=False
    )


def _recertified(corpus: Corpus, said: Mapping[str, str]) -> Link:
    """Return the rows of a recertification with the labels and the decided batches that they were made of."""
    number = int(said["recertification"])
    key = recertification_key(corpus.name, number, "recertification.json")
    about = corpus.store.read_json(key) if corpus.store.exists(key) else {}
    lines, batches = int(about.get("labels", {}).get("lines", 0)), about.get("batches", {})
    # new labels are added below those that were read, and change nothing of what the certificate stands on
    journal = (
        corpus.store.read_bytes(labels_key(corpus.name)).splitlines(keepends=True)
        if corpus.store.exists(labels_key(corpus.name))
        else []
    )
    read = sha256_bytes(b"".join(journal[:lines])) if len(journal) >= lines else ""
    decided = [
        file_link(corpus.store, "table", batch_key(corpus.name, name, "decisions.parquet"), sha256)
        for name, sha256 in sorted(batches.items())
    ]
    named = sha256_bytes(canonical_json(batches)) if about else ""
    links = [
        compared(
            "labels",
            labels_key(corpus.name),
            said.get("labels_sha256", ""),
            read,
            detail=f"its first {lines} lines",
        ),
        compared(
            "batches",
            key,
            said.get("decisions_sha256", ""),
            named,
            detail=f"{len(batches)} were decided",
            links=decided,
        ),
    ]
    rows, detail = (
        recertification_key(corpus.name, number, "scores.parquet"),
        f"recertification {number}: CAL and the audit sample",
    )
    return file_link(
        corpus.store,
        "audit_sample",
        rows,
        str(about.get("scores_sha256", "")),
        detail=detail,
        links=links,
    )


def _document_sha256(store: Store, key: str) -> str:
    """Return the hash of what a JSON document says; empty where there is none that can be read."""
    try:
        return sha256_bytes(canonical_json(store.read_json(key))) if store.exists(key) else ""
    except (CertifyError, ValueError):
        return "unreadable"
