"""Groups, tags, partitions, documents and versions of assets: the one place that spells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from certify_assets.corpora.config import corpus_file
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.inbox import read_versions
from certify_assets.corpora.splits import SPLITS
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import ALPHAS, DELTA, PROCEDURES, SIDES
from certify_assets.judges.stored import judge_file
from certify_assets.operations.batch_audit import audits_version
from certify_assets.operations.batches import decided_version, received_version
from certify_assets.operations.comparison import MAIN_TABLE_KEY, comparison_key
from certify_assets.operations.deployment import load_deployment
from certify_assets.operations.history import history_key
from certify_assets.operations.labels import reviewed_key
from certify_assets.operations.recertification_record import recertifications
from certify_assets.operations.review_queue import queue_key
from certify_assets.research.certifiability import CERTIFIABILITY_KEY
from certify_assets.research.real_scores import real_scores_key
from certify_assets.research.simulation_study import SIMULATION_KEY
from certify_assets.research.tables import STUDY_PAGE
from certify_assets.storage.store import Store

#: data that others write: sensors and commands observe its versions
SOURCE, INBOX = "corpora/source_runs", "operations/inbox"
#: partitions: one a corpus, added by a command or a sensor while the platform runs
CORPORA = "corpora"
corpora_partitions = dg.DynamicPartitionsDefinition(name=CORPORA)
CORPORA_GROUP, OPERATIONS_GROUP, RESEARCH_GROUP = "corpora", "operations", "research"
#: of a corpus, from its judges: with the corpora they would make a cycle of groups
RESULTS_GROUP = "results"
LM_GROUP, TRANSFER_GROUP, HARVEST_GROUP = "judges_lm", "judges_transfer", "judges_harvest"
BASELINE_GROUP, ENDPOINT_GROUP = "judges_baseline", "judges_endpoint"
#: tag by which jobs separate judges that cost money, without reading the user's document
FAMILY = "certify/family"
#: tag of what a judge takes: seconds, minutes (a language model here) or money
COST = "certify/cost"
#: tag of a materialization or an observation
VERSION = "dagster/data_version"
# asset → the document that it stores: of a corpus, of a judge on it, or elsewhere
_OF_CORPORA = {
    "corpora/trajectories": "trajectories.parquet",
    "corpora/split_manifest": "splits/manifest.json",
    **{f"corpora/{name}_split": f"splits/{name}.parquet" for name in SPLITS},
    "corpora/profile": "profile.json",
    "corpora/leak_controls": "controls.json",
    "corpora/report": "page.html",
}
_OF_JUDGES = {
    "model": "adapter.json",
    "scores": "scores.json",
    "certificate": "certificates.json",
    "audit": "audits.json",
    "report": "page.html",
    "monitor": "monitor.json",
}
_OTHERS: dict[str, Callable[[str], str]] = {
    "corpora/comparison": comparison_key,
    "operations/review_queue": queue_key,
    "operations/reviewed_labels": reviewed_key,
    "operations/history": history_key,
    "research/real_scores": real_scores_key,
    "research/main_table": lambda _: MAIN_TABLE_KEY,
    "research/certifiability": lambda _: CERTIFIABILITY_KEY,
    "research/simulation": lambda _: SIMULATION_KEY,
    "research/report": lambda _: STUDY_PAGE,
}


#: what decides a certificate, besides its rows
CERTIFYING: Mapping[str, Any] = {
    "procedures": PROCEDURES,
    "alphas": ALPHAS,
    "delta": DELTA,
    "sides": SIDES,
}


def code_version(**facts: Any) -> str:
    """Return the version of an asset's code: what decides its content, whichever the release."""
    return sha256_bytes(canonical_json(facts))[:16]


def judge_code_version(spec: JudgeSpec, part: str) -> str:
    """Return the code version of a judge's asset: renderer and prompt, or the procedures."""
    if part not in ("model", "scores"):
        return code_version(part=part, **CERTIFYING)
    prompt = {}
    if spec.uses_language_model:
        from certify_assets.judges.lm.prompt import ENCODER_VERSION

        prompt = {
            "prompt": spec.reading.prompt.sha256,
            "encoder": ENCODER_VERSION,
            "tokens": spec.reading.tokens,
        }
    about = {"judge": spec.registration(), "renderer": spec.reading.renderer.sha256, **prompt}
    return code_version(part=part, seed=spec.seed, **about)


# of assets whose version is not the hash of the documents that they store; "" where there is none
_VERSIONS: dict[str, Callable[[Corpus], str]] = {
    "operations/deployment": lambda corpus: getattr(load_deployment(corpus), "version", ""),
    "operations/incoming_runs": received_version,
    "operations/decisions": decided_version,
    "operations/batch_certificates": audits_version,
    "operations/recertification": lambda corpus: "".join(
        item.inputs_sha256 for item in recertifications(corpus)[-1:]
    ),
}


def stored_version(store: Store, name: str, corpus: str = "") -> dg.DataVersion | None:
    """Return the version of what an asset stores now; None if it stores nothing."""
    if of_asset := _VERSIONS.get(name):
        found = of_asset(Corpus(store, corpus))
        return dg.DataVersion(found) if found else None
    document_key = document_of(name, corpus)
    if document_key is None or not store.exists(document_key):
        return None
    if not document_key.endswith("audits.json"):
        return dg.DataVersion(store.sha256(document_key))
    # without its read in the ledger: the same audit again is another read
    document = store.read_json(document_key)
    document.pop("ledger", None)
    return dg.DataVersion(sha256_bytes(canonical_json(document)))


def document_of(name: str, corpus: str) -> str | None:
    """Return the storage key of the document of an asset; None where it stores none."""
    folder, _, part = name.rpartition("/")
    if folder.startswith("judges/"):
        document = _OF_JUDGES.get(part)
        return document and judge_file(folder.removeprefix("judges/"), corpus, document)
    if name in _OF_CORPORA:
        return corpus_file(corpus, _OF_CORPORA[name])
    return _OTHERS[name](corpus) if name in _OTHERS else None


def observation(key: dg.AssetKey, corpus: str, version: str) -> dg.AssetObservation:
    """Return the event that an asset of a corpus was seen at a version."""
    return dg.AssetObservation(key, partition=corpus, tags={VERSION: version})


def config_version(corpus: Corpus) -> str:
    """Return the hash of the configuration of a corpus."""
    return (
        corpus.store.sha256(corpus.key("corpus.json")) if corpus.has("corpus.json") else "built in"
    )


def source_version(corpus: Corpus) -> str:
    """Return the version of the source runs: the configuration, and the files that arrived last."""
    versions = read_versions(corpus)
    if not versions:
        return config_version(corpus)
    return sha256_bytes(canonical_json([config_version(corpus), versions[-1].version]))
