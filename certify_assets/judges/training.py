"""Training a judge on SFT, and the choice among its candidates on CAL that every certificate then pays for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.corpora.corpus import open_split
from certify_assets.judges.judging import columns, renderer, save_adapter, texts
from certify_assets.judges.specs import ALPHAS, DELTA, GRID, JudgeSpec, judge_spec
from certify_assets.judges.timings import timed
from certify_assets.storage.progress import Report, silent
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.judges.lexical import LexicalJudge

__all__ = ["train_judge"]

_RULE = (
    "the weight on successes with the largest certified reject coverage on CAL at alpha 0.1 (at 0.2 where none certifies), "
    "the smaller weight on a tie; the level is divided by the number of candidates"
)


def train_judge(store: Store, corpus: str, judge: str, *, report: Report = silent) -> dict[str, Any]:
    """Train a judge on SFT, pick among its candidates on CAL where it has several, and store the adapter.

    Parameters
    ----------
    report : callable, optional
        Told how far a language model's training has come.

    Returns
    -------
    dict
        The adapter document: hashes, weight (of a lexical judge), rows and tasks of SFT, candidates, and each candidate's certified coverage on CAL.
    """
    spec = judge_spec(judge, store.root)
    with timed(store, corpus, judge, "train") as stage:
        # a folder of checkpoints is what a killed training left, or a finished one
        stage.continued = bool(store.names(f"judges/{judge}/{corpus}/training"))
        document = _trained(store, corpus, spec, report)
        stage.rows = document.get("training", {}).get("rl_trajectories", document["sft_trajectories"])
    return document


def _trained(store: Store, corpus: str, spec: JudgeSpec, report: Report) -> dict[str, Any]:
    if spec.endpoint is not None:
        from certify_assets.judges.endpoint.judging import register_endpoint

        return register_endpoint(store, corpus, spec)
    if spec.pool:
        from certify_assets.judges.transfer_training import train_transfer_judge

        return train_transfer_judge(store, corpus, spec, report=report)
    if spec.family == "harvest":
        from certify_assets.judges.harvest.chain import train_harvest_judge

        return train_harvest_judge(store, corpus, spec, report=report)
    if spec.family != "lexical":
        from certify_assets.judges.lm.training import train_language_judge

        return train_language_judge(store, corpus, spec, report=report)
    return _train_lexical(store, corpus, spec)


def _train_lexical(store: Store, corpus: str, spec: JudgeSpec) -> dict[str, Any]:
    from certify_assets.judges.lexical import LexicalJudge

    judge = spec.name
    sft, manifest = open_split(store, corpus, "sft")
    labelled = sft[sft["outcome"].notna()]
    using = renderer()
    rendered, outcomes = texts(labelled, using), labelled["outcome"].to_numpy(dtype=np.int8)
    trained = {
        weight: LexicalJudge.train(rendered, outcomes, success_weight=weight, seed=spec.seed, renderer_sha256=using.sha256)
        for weight in spec.success_weights
    }
    selection = _selection(store, corpus, spec, trained)
    chosen = (
        max(selection, key=lambda row: (row["coverage"], -row["success_weight"]))["success_weight"]
        if selection
        else spec.success_weights[0]
    )
    document = {
        "judge": judge,
        "corpus": corpus,
        "adapter_sha256": trained[chosen].adapter_sha256,
        "success_weight": chosen,
        "candidates": len(spec.success_weights),
        "selection": selection,
        "selection_rule": _RULE if selection else "",
        "sft_trajectories": len(labelled),
        "sft_unlabelled": len(sft) - len(labelled),
        "sft_tasks": int(labelled["task_id"].nunique()),
        "manifest_sha256": manifest.sha256,
        "renderer_sha256": using.sha256,
        "seed": spec.seed,
    }
    save_adapter(store, f"judges/{judge}/{corpus}/adapter", trained[chosen])
    store.write_json(f"judges/{judge}/{corpus}/adapter.json", document)
    return document


def _selection(store: Store, corpus: str, spec: JudgeSpec, trained: Mapping[float, LexicalJudge]) -> list[dict[str, Any]]:
    """Certified coverage of each candidate on CAL, each at the level that pays for all of them."""
    from certify_assets.certificates import certify
    from certify_assets.judges.base import score_table

    if len(trained) == 1:
        return []
    cal, _ = open_split(store, corpus, "cal")
    cal = cal[cal["outcome"].notna()]
    tables = {weight: score_table(judge, cal, renderer()) for weight, judge in trained.items()}
    rows: list[dict[str, Any]] = []
    for alpha in ALPHAS:
        rows = []
        for weight, table in tables.items():
            certificate = certify(
                *columns(table),
                alpha=alpha,
                delta=DELTA,
                grid=GRID,
                candidates=len(spec.success_weights),
            )
            rows.append({"name": f"w{weight:g}", "success_weight": weight, "alpha": alpha, "coverage": certificate.coverage})
        if any(row["coverage"] > 0 for row in rows):
            break
    return rows
