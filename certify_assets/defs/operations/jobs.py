"""Jobs: the whole line for one corpus."""

from __future__ import annotations

from typing import Any

import dagster as dg

from certify_assets.defs.judges.assets import FAMILY
from certify_assets.defs.operations.assets import GROUP as OPERATION
from certify_assets.judges.specs import (
    ENDPOINT,
    HARVEST_JUDGES,
    JUDGES,
    LANGUAGE_JUDGES,
    TRANSFER_JUDGES,
    judges,
)

__all__ = [
    "WEEKLY",
    "certify_corpus_job",
    "decide_runs_job",
    "endpoint_jobs",
    "language_harvest_job",
    "language_judges_job",
    "lexical_harvest_job",
    "recertify_judges_job",
    "transfer_judges_job",
]

#: name of the job that the weekly schedule starts
WEEKLY = "recertify_judges"
# they cost money, so they run when asked for and never with the rest
_ENDPOINTS = dg.AssetSelection.tag(FAMILY, ENDPOINT)
# of what stands in the data root, so it goes with every job that changes a judge: seconds
_COMPARED = dg.AssetSelection.assets("comparison")
_ARMS = dg.AssetSelection.assets(
    *[dg.AssetKey([name, "arm"]) for name in LANGUAGE_JUDGES if JUDGES[name].family == "grpo"]
)

# everything that is made for one corpus; the generation of the embedded runs and the studies are asked for by themselves
certify_corpus_job = dg.define_asset_job(
    "certify_corpus",
    selection=dg.AssetSelection.all()
    - dg.AssetSelection.assets("miniwob_runs")
    - dg.AssetSelection.groups("study", OPERATION)
    - dg.AssetSelection.groups(*LANGUAGE_JUDGES, *TRANSFER_JUDGES, *HARVEST_JUDGES, "models")
    - _ENDPOINTS,
    description="Import, split, check, train, score, certify, audit and draw one corpus with the judges that need seconds.",
)

language_judges_job = dg.define_asset_job(
    "language_judges",
    # an arm has a partition of its own; the adapter trains those that are missing
    selection=dg.AssetSelection.groups(*LANGUAGE_JUDGES, "models", "comparison") - _ARMS,
    description="Train, score, certify, audit and draw one corpus that is split already with the language-model judges: minutes on two cores.",
)

transfer_judges_job = dg.define_asset_job(
    "transfer_judges",
    selection=dg.AssetSelection.groups(*TRANSFER_JUDGES) | _COMPARED,
    description="Train judges for one corpus on the SFT splits of the others, score, certify, audit and draw; skipped where no other is split.",
)

lexical_harvest_job = dg.define_asset_job(
    "lexical_harvest",
    selection=dg.AssetSelection.groups(*(name for name in HARVEST_JUDGES if not JUDGES[name].model))
    | dg.AssetSelection.assets("harvests")
    | _COMPARED,
    description="Self-train the lexical judge on what its certificate lets through, round by round, and the study of harvests: seconds a round.",
)

language_harvest_job = dg.define_asset_job(
    "language_harvest",
    selection=dg.AssetSelection.groups(*(name for name in HARVEST_JUDGES if JUDGES[name].model))
    | _COMPARED,
    description="Self-train the language-model judge on what its certificate lets through, round by round: minutes a round on two cores.",
)


decide_runs_job = dg.define_asset_job(
    "decide_runs",
    selection=dg.AssetSelection.assets("incoming_runs", "decisions", "review_queue"),
    description="Import what lies in the inbox of one corpus, decide it by the deployed judge, and print the queue of people.",
)


def recertify_judges_job() -> Any:
    """Return the job of the weekly schedule, which takes from it what each corpus needs: launched as it is, it makes everything anew."""
    paid = [
        dg.AssetKey([name, part])
        for name, spec in judges().items()
        if spec.family == ENDPOINT
        for part in ("adapter", "scores")
    ]
    return dg.define_asset_job(
        WEEKLY,
        selection=dg.AssetSelection.all()
        - dg.AssetSelection.assets("miniwob_runs", *paid)
        - dg.AssetSelection.assets("incoming_runs", "decisions")
        - dg.AssetSelection.groups("study", "models")
        - _ARMS,
        description=(
            "Certify every judge of one corpus anew, and recertify the deployed one. The weekly schedule leaves out what still stands; launched as it is, "
            "it trains language models, hours on two cores."
        ),
    )


def endpoint_jobs() -> list[Any]:
    """Return the job of the judges that the user's document adds; none where it adds none."""
    if not any(spec.family == ENDPOINT for spec in judges().values()):
        return []
    job = dg.define_asset_job(
        "endpoint_judges",
        selection=_ENDPOINTS | _COMPARED,
        description="Register, score, compare, certify, audit and draw one corpus that is split already with every endpoint judge: costs money.",
    )
    return [job]
