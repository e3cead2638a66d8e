"""Code versions from what decides an asset's content, data versions from the stored documents."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg

from certify_assets._version import __version__
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.specs import ALPHAS, DELTA, GRID, PROCEDURES, SIDES, JudgeSpec
from certify_assets.storage.store import Store

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


def code_version(**facts: Any) -> str:
    """Return the version of an asset's code: the package's, and what decides the content."""
    return sha256_bytes(canonical_json({"version": __version__, **facts}))[:16]


def judge_code_version(spec: JudgeSpec, part: str) -> str:
    """Return the code version of a judge's asset: renderer and prompt, or the procedures."""
    if part not in ("model", "scores"):
        return code_version(
            part=part, procedures=PROCEDURES, alphas=ALPHAS, delta=DELTA, grid=GRID, sides=SIDES
        )
    from certify_assets.judges.record import renderer

    facts: dict[str, Any] = {"judge": spec.registration(), "renderer": renderer().sha256}
    if spec.uses_language_model:
        from certify_assets.judges.lm.prompt import ENCODER_VERSION, AuditorPrompt

        facts |= {"prompt": AuditorPrompt().sha256, "encoder": ENCODER_VERSION}
    return code_version(part=part, seed=spec.seed, **facts)


def stored_version(store: Store, key: dg.AssetKey, corpus: str = "") -> dg.DataVersion | None:
    """Return the hash of the documents that an asset stores, those of now; None if it names none.

    The document of an audit is taken without the head of the ledger: every read of TEST moves
    it, and the audit stays what it was.
    """
    judge, patterns = _patterns(key)
    if not patterns:
        return None
    found: dict[str, str | None] = {}
    for pattern in patterns:
        name = pattern.format(c=corpus, j=judge)
        if not store.exists(name):
            found[name] = None
        elif name.endswith("audits.json"):
            document = json.loads(store.read_bytes(name))
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
    judge = key.path[1] if key.path[0] == "judges" and len(key.path) == 3 else ""
    return judge, _DOCUMENTS.get(key.path[-1] if judge else key.to_user_string(), ())
