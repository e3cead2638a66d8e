"""Jobs: the whole line for one corpus."""

from __future__ import annotations

import dagster as dg

from certify_assets.protocol.judge_specs import JUDGES, LANGUAGE_JUDGES, TRANSFER_JUDGES

__all__ = ["certify_corpus_job", "language_judges_job", "transfer_judges_job"]

# everything that is made for one corpus; the generation of the embedded runs and the studies are asked for by themselves
certify_corpus_job = dg.define_asset_job(
    "certify_corpus",
    selection=dg.AssetSelection.all()
    - dg.AssetSelection.assets("miniwob_runs")
    - dg.AssetSelection.groups("study")
    - dg.AssetSelection.groups(*LANGUAGE_JUDGES)
    - dg.AssetSelection.groups(*TRANSFER_JUDGES),
    description="Import, split, check, train, score, certify, audit and draw one corpus with the judges that need seconds.",
    executor_def=dg.in_process_executor,
)

language_judges_job = dg.define_asset_job(
    "language_judges",
    # an arm has a partition of its own; the adapter trains those that are missing
    selection=dg.AssetSelection.groups(*LANGUAGE_JUDGES)
    - dg.AssetSelection.assets(*[dg.AssetKey([name, "arm"]) for name in LANGUAGE_JUDGES if JUDGES[name].family == "grpo"]),
    description="Train, score, certify, audit and draw one corpus that is split already with the language-model judges: minutes on two cores.",
    executor_def=dg.in_process_executor,
)

transfer_judges_job = dg.define_asset_job(
    "transfer_judges",
    selection=dg.AssetSelection.groups(*TRANSFER_JUDGES),
    description="Train judges for one corpus on the SFT splits of the others, score, certify, audit and draw; skipped where no other is split.",
    executor_def=dg.in_process_executor,
)
