"""A round of CertHarvest as a judge of the platform: harvest, retrain, and the documents that say what was taken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.certificates import Settings
from certify_assets.errors import GateClosedError, LeakError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.harvest.gate import HarvestGate, open_gate
from certify_assets.judges.harvest.learners import language_learner, lexical_learner
from certify_assets.judges.harvest.measures import contamination, rendered_lengths, skew
from certify_assets.judges.harvest.withholding import (
    HALVES_SEED,
    Pool,
    halves,
    refuse_held_out,
    training_set,
    withhold,
)
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.judging import renderer, save_adapter, workplace
from certify_assets.judges.specs import DELTA, GRID, JudgeSpec
from certify_assets.storage.progress import Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.judges.harvest.loop import Learner

__all__ = ["harvest_violations", "train_harvest_judge"]


@dataclass(frozen=True, eq=False)
class _Harvest:
    """What a gate let through."""

    gate: HarvestGate
    rows: pd.DataFrame
    document: dict[str, Any]
    report: dict[str, Any]


def train_harvest_judge(judged: JudgedCorpus, *, report: Report = silent) -> dict[str, Any]:
    """Harvest with the start's certificate on half A, train from the base on source and harvest, store the adapter; return its document.

    Raises
    ------
    GateClosedError
        If half A certifies nothing: there is no harvest and no new judge. The reason is stored.
    StaleCertificateError
        If the start's scores are not those of what is stored now.
    """
    table, hashes, _ = judged.beside(judged.spec.start).scores
    sft, manifest = judged.corpus.split("sft"), judged.corpus.manifest
    rl = judged.corpus.split("rl")
    harvest = _harvested(withhold(rl), table, judged.spec)
    folder = judged.key()
    grounds = {
        "start": judged.spec.start,
        **{f"start_{name}": hashes[name] for name in ("adapter_sha256", "scores_sha256")},
    }
    document = {**harvest.document, **grounds, "manifest_sha256": manifest.sha256}
    judged.store.write_json(f"{folder}/harvest.json", document)
    judged.store.write_json(f"{folder}/contamination.json", harvest.report)
    if not len(harvest.rows):
        # a judge of an earlier opening stands on a gate that is closed now
        judged.store.delete(f"{folder}/adapter.json")
        raise GateClosedError(
            f"{judged} harvests nothing from {judged.corpus}: {document['reason']}"
        )
    taken = harvest.rows[["trajectory_id", "task_id", "agent", "corpus"]].assign(
        pseudo_label=document["pseudo_label"]
    )
    harvest_sha256 = judged.store.write_table(f"{folder}/harvest.parquet", taken)
    labelled = sft[sft["outcome"].notna()].reset_index(drop=True)
    training = training_set(
        labelled, harvest.rows, label=document["pseudo_label"], manifest=manifest
    )
    with workplace(judged.store, judged.key("training")) as place:
        learner = _learner(labelled, manifest, judged.spec, place, report)
        judge = learner.train(training, "adapter")
        save_adapter(judged.store, f"{folder}/adapter", judge)  # type: ignore[arg-type]
    adapter = {
        "judge": judged.spec.name,
        "corpus": judged.corpus.name,
        "adapter_sha256": judge.provenance().adapter_sha256,
        "candidates": 1,
        "selection": [],
        "selection_rule": "",
        "sft_trajectories": len(labelled),
        "sft_unlabelled": len(sft) - len(labelled),
        "sft_tasks": int(labelled["task_id"].nunique()),
        "manifest_sha256": manifest.sha256,
        "renderer_sha256": renderer().sha256,
        "seed": judged.spec.seed,
        "harvest": {
            "sha256": harvest_sha256,
            "size": len(taken),
            "gate_sha256": sha256_bytes(canonical_json(document)),
            **grounds,
        },
    }
    if judged.spec.model:
        adapter["training"] = learner.trainings["adapter"]
    else:
        adapter["success_weight"] = 1.0
    judged.store.write_json(f"{folder}/adapter.json", adapter)
    return adapter


def harvest_violations(judge: JudgedCorpus) -> list[str]:
    """Say what breaks the rule that no pseudo-label is of a task of CAL or TEST and no stored split carries one; empty where nothing does."""
    import pandas as pd

    key = judge.key("harvest.parquet")
    if not judge.store.exists(key):
        return []
    harvested = judge.store.read_table(key)
    adapter = (
        judge.store.read_json(judge.key("adapter.json"))
        if judge.store.exists(judge.key("adapter.json"))
        else {}
    )
    found = []
    for split in ("cal", "test"):
        frame, manifest = judge.corpus.split(split), judge.corpus.manifest
        shared = set(frame["trajectory_id"]) & set(harvested["trajectory_id"])
        found += [f"{len(shared)} harvested runs are rows of {split.upper()}."] if shared else []
    try:
        refuse_held_out(pd.DataFrame(harvested), manifest, what="pseudo-labelled")
    except LeakError as error:
        found.append(str(error))
    if adapter.get("harvest", {}).get("sha256") != judge.store.sha256(key):
        found.append(
            f"the harvest of {judge} on {judge.corpus} is not the one that its adapter was trained on; materialize judges/{judge}/model again."
        )
    return found


def _harvested(pool: Pool, table: pd.DataFrame, spec: JudgeSpec) -> _Harvest:
    """Open the gate on half A of CAL and take what lies inside."""
    cal = table[(table["split"] == "cal") & table["outcome"].notna()].reset_index(drop=True)
    half_a, _ = halves(cal, HALVES_SEED)
    settings = Settings(alpha=spec.alpha, delta=DELTA, grid=GRID, procedure=spec.gate)
    gate = open_gate(half_a, settings)
    scored = pool.frame[["trajectory_id", "task_id"]].merge(
        table[["trajectory_id", "score"]], on="trajectory_id", how="left", validate="one_to_one"
    )
    taken = gate.taken(scored["score"].to_numpy(np.float64))
    reason = (
        gate.reason
        if taken.any() or not gate.open
        else "the certified region holds no run of the pool."
    )
    document = {
        **gate.to_dict(),
        "open": bool(taken.any()),
        "reason": reason,
        "settings": {
            "alpha": spec.alpha,
            "delta": DELTA,
            "grid": GRID,
            "procedure": spec.gate,
            "side": "reject",
            "halves_seed": HALVES_SEED,
        },
        "certificate": gate.certificate.to_dict(),
        "pseudo_label": 0,
        "size": int(taken.sum()),
        "pool": len(pool.frame),
        "skew": skew(pool.frame, taken, rendered_lengths(pool.frame)),
    }
    return _Harvest(
        gate, pool.frame[taken].reset_index(drop=True), document, contamination(gate, scored, pool)
    )


def _learner(
    source: pd.DataFrame, manifest: SplitManifest, spec: JudgeSpec, folder: Path, report: Report
) -> Learner:
    if spec.model:
        return language_learner(
            source,
            manifest,
            folder,
            model=spec.model,
            revision=spec.revision,
            seed=spec.seed,
            report=report,
        )
    return lexical_learner(source, manifest, seed=spec.seed)
