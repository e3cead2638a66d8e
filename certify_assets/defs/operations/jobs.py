"""Jobs: the whole line for one corpus."""

from __future__ import annotations

from typing import Any

import dagster as dg

from certify_assets.defs.judges.assets import FAMILY
from certify_assets.defs.operations.assets import GROUP as OPERATION
from certify_assets.protocol.judge_specs import ENDPOINT, HARVEST_JUDGES, JUDGES, LANGUAGE_JUDGES, TRANSFER_JUDGES, judges

__all__ = [
    "certify_corpus_job",
    "decide_runs_job",
    "endpoint_jobs",
    "language_harvest_job",
    "language_judges_job",
    "lexical_harvest_job",
    "transfer_judges_job",
]

# they cost money, so they run when asked for and never with the rest
_ENDPOINTS = dg.AssetSelection.tag(FAMILY, ENDPOINT)

# everything that is made for one corpus; the generation of the embedded runs and the studies are asked for by themselves
certify_corpus_job = dg.define_asset_job(
    "certify_corpus",
    selection=dg.AssetSelection.all()
    - dg.AssetSelection.assets("miniwob_runs")
    - dg.AssetSelection.groups("study", OPERATION)
    - dg.AssetSelection.groups(*LANGUAGE_JUDGES, *TRANSFER_JUDGES, *HARVEST_JUDGES, "models")
    - _ENDPOINTS,
    description="Import, split, check, train, score, certify, audit and draw one corpus with the judges that need seconds.",
    executor_def=dg.in_process_executor,
)

language_judges_job = dg.define_asset_job(
    "language_judges",
    # an arm has a partition of its own; the adapter trains those that are missing
    selection=dg.AssetSelection.groups(*LANGUAGE_JUDGES, "models", "comparison")
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

lexical_harvest_job = dg.define_asset_job(
    "lexical_harvest",
    selection=dg.AssetSelection.groups(*(name for name in HARVEST_JUDGES if not JUDGES[name].model)) | dg.AssetSelection.assets("harvests"),
    description="Self-train the lexical judge on what its certificate lets through, round by round, and the study of harvests: seconds a round.",
    executor_def=dg.in_process_executor,
)

language_harvest_job = dg.define_asset_job(
    "language_harvest",
    selection=dg.AssetSelection.groups(*(name for name in HARVEST_JUDGES if JUDGES[name].model)),
    description="Self-train the language-model judge on what its certificate lets through, round by round: minutes a round on two cores.",
    executor_def=dg.in_process_executor,
)


decide_runs_job = dg.define_asset_job(
    "decide_runs",
    selection=dg.AssetSelection.assets("incoming_runs", "decisions", "review_queue"),
    description="Import what lies in the inbox of one corpus, and decide it by the deployed judge.",
    executor_def=dg.in_process_executor,
)


def endpoint_jobs() -> list[Any]:
    """Return the job of the judges that the user's document adds; none where it adds none."""
    if not any(spec.family == ENDPOINT for spec in judges().values()):
        return []
    job = dg.define_asset_job(
        "endpoint_judges",
        selection=_ENDPOINTS,
        description="Register, score, compare, certify, audit and draw one corpus that is split already with every endpoint judge: costs money.",
        executor_def=dg.in_process_executor,
    )
    return [job]
