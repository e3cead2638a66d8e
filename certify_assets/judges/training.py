"""Training a judge on SFT, and the choice among its candidates on CAL that every certificate then pays for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.judging import columns, renderer, save_adapter, texts
from certify_assets.judges.specs import ALPHAS, DELTA, GRID
from certify_assets.judges.timings import timed
from certify_assets.storage.progress import Report, silent

if TYPE_CHECKING:
    from certify_assets.judges.lexical import LexicalJudge

__all__ = ["train_judge"]

_RULE = (
    "the weight on successes with the largest certified reject coverage on CAL at alpha 0.1 (at 0.2 where none certifies), "
    "the smaller weight on a tie; the level is divided by the number of candidates"
)


def train_judge(judge: JudgedCorpus, *, report: Report = silent) -> dict[str, Any]:
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
    spec = judge.spec
    with timed(judge, "train") as stage:
        # a folder of checkpoints is what a killed training left, or a finished one
        stage.continued = bool(judge.store.names(judge.key("training")))
        document = _trained(JudgedCorpus.of(judge.corpus, spec), report)
        stage.rows = document.get("training", {}).get(
            "rl_trajectories", document["sft_trajectories"]
        )
    return document


def _trained(judge: JudgedCorpus, report: Report) -> dict[str, Any]:
    if judge.spec.endpoint is not None:
        from certify_assets.judges.endpoint.judging import register_endpoint

        return register_endpoint(judge)
    if judge.spec.pool:
        from certify_assets.judges.transfer_training import train_transfer_judge

        return train_transfer_judge(judge, report=report)
    if judge.spec.family == "harvest":
        from certify_assets.judges.harvest.chain import train_harvest_judge

        return train_harvest_judge(judge, report=report)
    if judge.spec.family != "lexical":
        from certify_assets.judges.lm.training import train_language_judge

        return train_language_judge(judge, report=report)
    return _train_lexical(judge)


def _train_lexical(judged: JudgedCorpus) -> dict[str, Any]:
    from certify_assets.judges.lexical import LexicalJudge

    judge = judged.spec.name
    sft, manifest = judged.corpus.split("sft"), judged.corpus.manifest
    labelled = sft[sft["outcome"].notna()]
    using = renderer()
    rendered, outcomes = texts(labelled, using), labelled["outcome"].to_numpy(dtype=np.int8)
    trained = {
        weight: LexicalJudge.train(
            rendered,
            outcomes,
            success_weight=weight,
            seed=judged.spec.seed,
            renderer_sha256=using.sha256,
        )
        for weight in judged.spec.success_weights
    }
    selection = _selection(judged, trained)
    chosen = (
        max(selection, key=lambda row: (row["coverage"], -row["success_weight"]))["success_weight"]
        if selection
        else judged.spec.success_weights[0]
    )
    document = {
        "judge": judge,
        "corpus": judged.corpus.name,
        "adapter_sha256": trained[chosen].adapter_sha256,
        "success_weight": chosen,
        "candidates": len(judged.spec.success_weights),
        "selection": selection,
        "selection_rule": _RULE if selection else "",
        "sft_trajectories": len(labelled),
        "sft_unlabelled": len(sft) - len(labelled),
        "sft_tasks": int(labelled["task_id"].nunique()),
        "manifest_sha256": manifest.sha256,
        "renderer_sha256": using.sha256,
        "seed": judged.spec.seed,
    }
    save_adapter(judged.store, f"judges/{judge}/{judged.corpus}/adapter", trained[chosen])
    judged.store.write_json(f"judges/{judge}/{judged.corpus}/adapter.json", document)
    return document


def _selection(judged: JudgedCorpus, trained: Mapping[float, LexicalJudge]) -> list[dict[str, Any]]:
    """Certified coverage of each candidate on CAL, each at the level that pays for all of them."""
    from certify_assets.certificates import certify
    from certify_assets.judges.base import score_table

    if len(trained) == 1:
        return []
    cal = judged.corpus.split("cal")
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
                candidates=len(judged.spec.success_weights),
            )
            rows.append(
                {
                    "name": f"w{weight:g}",
                    "success_weight": weight,
                    "alpha": alpha,
                    "coverage": certificate.coverage,
                }
            )
        if any(row["coverage"] > 0 for row in rows):
            break
    return rows
