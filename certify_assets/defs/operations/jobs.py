"""Jobs of one corpus: the whole pipeline, and the judges that are asked for by themselves."""

from __future__ import annotations

from typing import Any

import dagster as dg

from certify_assets.defs.names import (
    BASELINE_GROUP,
    ENDPOINT_GROUP,
    FAMILY,
    HARVEST_GROUP,
    LM_GROUP,
    OPERATIONS_GROUP,
    RESEARCH_GROUP,
    TRANSFER_GROUP,
    chains,
    folder_of,
    judge_key,
    key,
)
from certify_assets.defs.setup import judges
from certify_assets.judges.specs import HARVEST_JUDGES, JUDGES

#: name of the job that the weekly schedule starts
WEEKLY = "refresh_all_certificates"
# not all that there is: a project that has the component has assets of its own
_PLATFORM = (
    folder_of("corpora") | folder_of("judges") | folder_of("operations") | folder_of("research")
)
# they cost money, so they run when asked for and never with the rest
_ENDPOINTS = dg.AssetSelection.tag(FAMILY, "endpoint")
# it reads the data root in seconds, so it is in every job that changes a judge
_COMPARED = dg.AssetSelection.assets(key("corpora/comparison"))
_COMPACT = folder_of("judges/compact_model")

_BY_POLICY = dg.AssetSelection.assets(key("operations/automatic_deployment"))

# generating the embedded runs and the studies are asked for by themselves
onboard_job = dg.define_asset_job(
    "onboard_corpus",
    selection=(
        _PLATFORM
        - dg.AssetSelection.groups(
            *(RESEARCH_GROUP, OPERATIONS_GROUP, LM_GROUP),
            *(TRANSFER_GROUP, HARVEST_GROUP, ENDPOINT_GROUP, BASELINE_GROUP),
        )
    )
    | _BY_POLICY,
    description="Import, split, check, train, score, certify, audit and draw one corpus with the "
    "judges that need seconds; deploy what the corpus's policy lets decide.",
)

lm_judges_job = dg.define_asset_job(
    "train_lm_judges",
    selection=dg.AssetSelection.groups(LM_GROUP)
    | _COMPARED
    | dg.AssetSelection.assets(key("corpora/agent_disjoint")),
    description="Train, score, certify, audit and draw one corpus that is split already with the "
    "language-model judges: minutes on two cores.",
)

baseline_judges_job = dg.define_asset_job(
    "baseline_judges",
    selection=dg.AssetSelection.groups(BASELINE_GROUP) | _COMPARED,
    description="Train, score, certify, audit and draw one corpus that is split already with the "
    "judges that others are compared with, seconds each: structure, of which combined is the mean "
    "with lexical, and lexical_weighted.",
)

transfer_judges_job = dg.define_asset_job(
    "transfer_judges",
    selection=dg.AssetSelection.groups(TRANSFER_GROUP) | _COMPARED,
    description="Train judges for one corpus on the SFT splits of the others, score, certify, "
    "audit and draw; skipped where no other is split.",
)

lexical_harvest_job = dg.define_asset_job(
    "lexical_harvest",
    selection=chains(*(name for name in HARVEST_JUDGES if not JUDGES[name].uses_language_model))
    | _COMPARED,
    description="Self-train the lexical judge on what its certificate lets through, round by "
    "round: seconds a round.",
)

language_harvest_job = dg.define_asset_job(
    "lm_harvest",
    selection=chains(*(name for name in HARVEST_JUDGES if JUDGES[name].uses_language_model))
    | _COMPARED,
    description="Self-train the language-model judge on what its certificate lets through, round "
    "by round: minutes a round on two cores.",
)

decide_job = dg.define_asset_job(
    "decide_inbox",
    selection=dg.AssetSelection.assets(
        *(
            key(f"operations/{name}")
            for name in ("incoming_runs", "decisions", "batch_certificates", "review_queue")
        )
    ),
    description="Import the inbox of one corpus as a batch, decide it by the deployed judge, and "
    "write the review queue.",
)


def refresh_job() -> Any:
    """Return the job of the weekly schedule, which selects from it what each corpus needs."""
    paid = [
        judge_key(name, part)
        for name, spec in judges().items()
        if spec.hosted
        for part in ("model", "scores")
    ]
    decided = (key(f"operations/{name}") for name in ("incoming_runs", "decisions"))
    return dg.define_asset_job(
        WEEKLY,
        selection=_PLATFORM
        - dg.AssetSelection.assets(*paid, *decided)
        - dg.AssetSelection.groups(RESEARCH_GROUP)
        - _COMPACT,
        description="Certify every judge of one corpus again, and recertify the deployed one. The "
        "weekly schedule leaves out what is up to date; launched as it is, it trains "
        "language models, hours on two cores.",
    )


endpoint_job = dg.define_asset_job(
    "score_endpoint_judges",
    selection=_ENDPOINTS | _COMPARED,
    description="Register, score, compare, certify, audit and draw one corpus that is split "
    "already with every endpoint judge: costs money.",
)


def judge_jobs() -> list[Any]:
    """Return the jobs of judges that are asked for by themselves, where there are such judges."""
    known = judges().values()
    harvests = [spec for spec in known if spec.name in HARVEST_JUDGES]
    wanted = [
        (lm_judges_job, any(spec.group == "lm" for spec in known)),
        (baseline_judges_job, any(spec.group == "baseline" for spec in known)),
        (transfer_judges_job, any(spec.group == "transfer" for spec in known)),
        (lexical_harvest_job, any(not spec.model for spec in harvests)),
        (language_harvest_job, any(spec.model for spec in harvests)),
        (endpoint_job, any(spec.hosted for spec in known)),
    ]
    return [job for job, there in wanted if there]


recertify_job = dg.define_asset_job(
    "recertify_deployed",
    # the labels and the queue too: what is decided has a job of its own
    selection=folder_of("operations")
    - dg.AssetSelection.assets(key("operations/incoming_runs"), key("operations/decisions")),
    description="Run the monitor of one corpus's deployed judge on its labels, recertify where "
    "enough is new, and draw the history.",
)
