"""Training of the transfer judges: the same judges and the same recipe as at home, on rows of other corpora."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.corpora.config import format_domain
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.judging import renderer, save_adapter, texts
from certify_assets.judges.specs import JudgeSpec
from certify_assets.judges.transfer import Pool, gather_pool
from certify_assets.storage.progress import Report, silent
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.judges.lexical import LexicalJudge
    from certify_assets.judges.lm.judge import CausalJudge

__all__ = ["no_sources", "pool_of", "train_transfer_judge"]

# an epoch of the pool is four of a home corpus's SFT split, and the paper's own number
_EPOCHS = 1.0


def pool_of(judge: JudgedCorpus) -> Pool:
    """Gather what a transfer judge of a corpus is trained on."""
    return gather_pool(
        judge.corpus, strict=judge.spec.pool == "transfer_strict", seed=judge.spec.seed
    )


def no_sources(judge: JudgedCorpus) -> str:
    """Say why a transfer judge of a corpus cannot be trained; empty where it can."""
    try:
        return pool_of(judge).missing
    except InputError as error:
        return str(error)


def train_transfer_judge(judged: JudgedCorpus, *, report: Report = silent) -> dict[str, Any]:
    """Train a judge for a corpus on the other corpora, store it and return its document.

    Raises
    ------
    InputError
        If no other corpus can give rows; the sentence says why each cannot.
    """
    pool = pool_of(judged)
    if pool.missing:
        raise InputError(pool.missing)
    judge, training = (
        _train_lexical(judged.store, pool, judged.spec)
        if judged.spec.family == "lexical"
        else _fine_tune(judged.store, pool, judged.spec, report)
    )
    document = {
        "judge": judged.spec.name,
        "corpus": judged.corpus.name,
        "adapter_sha256": judge.adapter_sha256,
        "candidates": 1,
        "selection": [],
        "selection_rule": "",
        "sft_trajectories": len(pool.frame),
        "sft_unlabelled": sum(source.dropped.get("no_label", 0) for source in pool.sources),
        "sft_tasks": sum(source.tasks for source in pool.sources),
        "manifest_sha256": judged.corpus.manifest.sha256,
        "renderer_sha256": renderer().sha256,
        "provenance": judge.provenance().to_dict(),
        "seed": judged.spec.seed,
        "training": training,
        "transfer": {**pool.to_dict(), "limits": _limits(pool, judged.spec)},
    }
    if judged.spec.family == "lexical":
        document["success_weight"] = judged.spec.success_weights[0]
    judged.store.write_json(judged.key("adapter.json"), document)
    return document


def _train_lexical(
    store: Store, pool: Pool, spec: JudgeSpec
) -> tuple[LexicalJudge, dict[str, Any]]:
    from certify_assets.judges.lexical import LexicalJudge

    using, outcomes = renderer(), pool.frame["outcome"].to_numpy(dtype=np.int8)
    judge = LexicalJudge.train(
        texts(pool.frame, using),
        outcomes,
        success_weight=spec.success_weights[0],
        seed=spec.seed,
        renderer_sha256=using.sha256,
    )
    save_adapter(store, f"judges/{spec.name}/{pool.corpus}/adapter", judge)
    return judge, {}


def _fine_tune(
    store: Store, pool: Pool, spec: JudgeSpec, report: Report
) -> tuple[CausalJudge, dict[str, Any]]:
    from certify_assets.judges.lm.training import train_on_rows

    # other sources are another run: its checkpoints must not stand in the way of this one
    run = sha256_bytes(canonical_json(pool.to_dict()))[:12]
    return train_on_rows(
        JudgedCorpus.of(Corpus(store, pool.corpus), spec),
        pool.frame,
        run=run,
        epochs=_EPOCHS,
        report=report,
    )


def _limits(pool: Pool, spec: JudgeSpec) -> list[str]:
    if pool.strict and spec.model == "compact" and pool.domain == format_domain("embedded").name:
        return [
            f"the compact base model was pretrained on MiniWoB++ runs, so this judge has read {pool.domain} text before its fine-tuning"
        ]
    return []
