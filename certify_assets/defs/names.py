"""Keys, groups, owners, partitions and versions of assets: the one place that spells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from certify_assets._version import __version__
from certify_assets.defs.setup import setup
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.reading import FORMER
from certify_assets.judges.specs import ALPHAS, DELTA, GRID, PROCEDURES, SIDES, JudgeSpec
from certify_assets.storage.store import Store

#: partitions: one a corpus, added by a command or a sensor while the platform runs
CORPORA = "corpora"
corpora_partitions = dg.DynamicPartitionsDefinition(name=CORPORA)
CORPORA_GROUP, OPERATIONS_GROUP, RESEARCH_GROUP = "corpora", "operations", "research"
LM_GROUP, TRANSFER_GROUP, HARVEST_GROUP = "judges_lm", "judges_transfer", "judges_harvest"
BASELINE_GROUP, ENDPOINT_GROUP = "judges_baseline", "judges_endpoint"
#: tag by which jobs separate judges that cost money, without reading the user's document
FAMILY = "certify/family"
#: tag of what a judge takes: seconds, minutes (a language model here) or money
COST = "certify/cost"
#: tag by which they leave out arms, whose partitions are others
PART = "certify/part"
#: tag of a materialization or an observation
VERSION = "dagster/data_version"
_SPLITS = ("sft", "rl", "cal", "test")
# asset → the documents that it stores; {c} is the corpus, {j} the judge
_DOCUMENTS: dict[str, tuple[str, ...]] = {
    "corpora/trajectories": ("corpora/{c}/trajectories.parquet",),
    "corpora/split_manifest": ("corpora/{c}/splits/manifest.json",),
    **{f"corpora/{name}_split": (f"corpora/{{c}}/splits/{name}.parquet",) for name in _SPLITS},
    "corpora/profile": ("corpora/{c}/profile.json",),
    "corpora/leak_controls": ("corpora/{c}/controls.json",),
    "corpora/report": ("corpora/{c}/page.html",),
    "corpora/agent_disjoint": ("comparison/{c}/agent_disjoint_lexical.json",),
    "corpora/comparison": ("comparison/{c}/comparison.json",),
    "model": ("judges/{j}/{c}/adapter.json",),
    "scores": ("judges/{j}/{c}/scores.json",),
    "certificate": ("judges/{j}/{c}/certificates.json",),
    "audit": ("judges/{j}/{c}/audits.json",),
    "report": ("judges/{j}/{c}/page.html",),
    "monitor": ("judges/{j}/{c}/monitor.json",),
    "arms_audit": ("judges/{j}/{c}/arms_audit.json",),
    "operations/deployment": ("operations/{c}/deployment.json",),
    "operations/review_queue": ("operations/{c}/queue.parquet",),
    "operations/reviewed_labels": ("operations/{c}/labels.parquet",),
    "operations/history": ("operations/{c}/history.json",),
    "research/seed_study": ("seeds/{c}.json",),
    "research/harvests": ("harvests/{c}/lexical.json",),
    "research/harvests_lm": ("harvests/{c}/sft.json",),
    "research/harvests_transfer": ("harvests/{c}/lexical_transfer.json",),
    "research/real_scores": ("real_scores/{c}.json",),
    "research/main_table": ("study/main_table.json",),
    "research/certifiability": ("study/certifiability.json",),
    "research/simulation": ("study/simulation.json",),
    "research/report": ("study/site/index.html",),
}


def key(name: str) -> dg.AssetKey:
    """Return the asset key that a name with slashes spells, such as ``corpora/trajectories``."""
    return dg.AssetKey([*setup().prefix, *name.split("/")])


def judge_key(judge: str, part: str) -> dg.AssetKey:
    """Return the key of one asset of a judge, such as its certificate."""
    return key(f"judges/{judge}/{part}")


def name_of(asset_key: dg.AssetKey) -> str:
    """Return the name of a key without the prefix of the code location."""
    return "/".join(asset_key.path[len(setup().prefix) :])


def judge_of(asset_key: dg.AssetKey) -> str:
    """Return the judge whose asset a key is; "" for other assets."""
    folder, _, rest = name_of(asset_key).partition("/")
    return rest.partition("/")[0] if folder == "judges" and "/" in rest else ""


def folder_of(name: str) -> dg.AssetSelection:
    """Select every asset below a name, such as ``research``."""
    return dg.AssetSelection.key_prefixes([*setup().prefix, *name.split("/")])


def chains(*judges: str) -> dg.AssetSelection:
    """Select every asset of some judges."""
    return dg.AssetSelection.key_prefixes(*[[*setup().prefix, "judges", name] for name in judges])


def source(name: str, group: str, **about: Any) -> dg.AssetSpec:
    """Return an asset that no run makes: files that others write, or a command."""
    return dg.AssetSpec(key(name), group_name=group, owners=list(setup().owners), **about)


#: what decides a certificate, besides its rows
CERTIFYING: Mapping[str, Any] = {
    "procedures": PROCEDURES,
    "alphas": ALPHAS,
    "delta": DELTA,
    "grid": GRID,
    "sides": SIDES,
}


def code_version(**facts: Any) -> str:
    """Return the version of an asset's code: the package's, and what decides the content."""
    return sha256_bytes(canonical_json({"version": __version__, **facts}))[:16]


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
            **({} if spec.reading in FORMER else {"tokens": spec.reading.tokens}),
        }
    about = {"judge": spec.registration(), "renderer": spec.reading.renderer.sha256, **prompt}
    return code_version(part=part, seed=spec.seed, **about)


def stored_version(store: Store, key: dg.AssetKey, corpus: str = "") -> dg.DataVersion | None:
    """Return the hash of the documents that an asset stores now; None if it names none."""
    judge, patterns = _patterns(key)
    if not patterns:
        return None
    found: dict[str, str | None] = {}
    for pattern in patterns:
        name = pattern.format(c=corpus, j=judge)
        if not store.exists(name):
            found[name] = None
        elif name.endswith("audits.json"):
            # without the head of the ledger: every read of TEST moves it, not the audit
            document = store.read_json(name)
            document.pop("ledger_head", None)
            found[name] = sha256_bytes(canonical_json(document))
        else:
            found[name] = store.sha256(name)
    return dg.DataVersion(sha256_bytes(canonical_json(found)))


def is_stored(store: Store, key: dg.AssetKey, corpus: str = "") -> bool:
    """Whether every document of an asset is stored."""
    judge, patterns = _patterns(key)
    return all(store.exists(pattern.format(c=corpus, j=judge)) for pattern in patterns)


def _patterns(key: dg.AssetKey) -> tuple[str, tuple[str, ...]]:
    judge = judge_of(key)
    return judge, _DOCUMENTS.get(key.path[-1] if judge else name_of(key), ())
