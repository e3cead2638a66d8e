"""Jobs of one corpus: the whole pipeline, and the judges that are asked for by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg

from certify_assets.defs.names import (
    BASELINE_GROUP,
    ENDPOINT_GROUP,
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
from certify_assets.judges.specs import HARVEST_JUDGES, JudgeSpec

#: name of the job that the weekly schedule starts
WEEKLY = "refresh_all_certificates"
# not all that there is: a project that has the component has assets of its own
_PLATFORM = (
    folder_of("corpora") | folder_of("judges") | folder_of("operations") | folder_of("research")
)
_COMPACT = folder_of("judges/compact_model")


def _assets(folder: str, *names: str) -> dg.AssetSelection:
    return dg.AssetSelection.assets(*(key(f"{folder}/{name}") for name in names))


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
    | _assets("operations", "automatic_deployment"),
    description="Import, split, check, train, score, certify, audit and draw one corpus with the "
    "judges that need seconds; deploy what the corpus's policy lets decide.",
)

decide_job = dg.define_asset_job(
    "decide_inbox",
    selection=_assets(
        "operations", "incoming_runs", "decisions", "batch_certificates", "review_queue"
    ),
    description="Import the inbox of one corpus as a batch, decide it by the deployed judge, and "
    "write the review queue.",
)

recertify_job = dg.define_asset_job(
    "recertify_deployed",
    # the labels and the queue too: what is decided has a job of its own
    selection=folder_of("operations") - _assets("operations", "incoming_runs", "decisions"),
    description="Run the monitor of one corpus's deployed judge on its labels, recertify where "
    "enough is new, and draw the history.",
)


def refresh_job() -> Any:
    """Return the job of the weekly schedule, which selects from it what each corpus needs."""
    paid = [
        judge_key(name, part)
        for name, spec in judges().items()
        if spec.hosted
        for part in ("model", "scores")
    ]
    return dg.define_asset_job(
        WEEKLY,
        selection=_PLATFORM
        - dg.AssetSelection.assets(*paid)
        - _assets("operations", "incoming_runs", "decisions")
        - dg.AssetSelection.groups(RESEARCH_GROUP)
        - _COMPACT,
        description="Certify every judge of one corpus again, and recertify the deployed one. The "
        "weekly schedule leaves out what is up to date; launched as it is, it trains "
        "language models, hours on two cores.",
    )


def _harvests(spec: JudgeSpec, *, language: bool) -> bool:
    return spec.name in HARVEST_JUDGES and spec.uses_language_model == language


# name, judges, what becomes of a corpus that is split already
_OF_JUDGES: tuple[tuple[str, Callable[[JudgeSpec], bool], str], ...] = (
    (
        "train_lm_judges",
        lambda spec: spec.group == "lm",
        "Train, score, certify, audit and draw with the language-model judges: minutes on two "
        "cores.",
    ),
    (
        "baseline_judges",
        lambda spec: spec.group == "baseline",
        "Train, score, certify, audit and draw with the judges that others are compared with, "
        "seconds each: structure, of which combined is the mean with lexical, and "
        "lexical_weighted.",
    ),
    (
        "transfer_judges",
        lambda spec: spec.group == "transfer",
        "Train judges on the SFT splits of the other corpora, score, certify, audit and draw; "
        "skipped where no other is split.",
    ),
    (
        "lexical_harvest",
        lambda spec: _harvests(spec, language=False),
        "Self-train the lexical judge on what its certificate lets through, round by round: "
        "seconds a round.",
    ),
    (
        "lm_harvest",
        lambda spec: _harvests(spec, language=True),
        "Self-train the language-model judge on what its certificate lets through, round by "
        "round: minutes a round on two cores.",
    ),
    (
        # they cost money, so they run when asked for and never with the rest
        "score_endpoint_judges",
        lambda spec: spec.hosted,
        "Register, score, compare, certify, audit and draw with every endpoint judge: costs money.",
    ),
)
JUDGE_JOBS = tuple(name for name, _, _ in _OF_JUDGES)


def judge_jobs() -> list[Any]:
    """Return the jobs of judges that are asked for by themselves, where there are such judges."""
    jobs = []
    for job, asked, description in _OF_JUDGES:
        if names := [name for name, spec in judges().items() if asked(spec)]:
            # it reads the data root in seconds, so it is in every job that changes a judge
            selection = chains(*names) | _assets("corpora", "comparison")
            if job == "train_lm_judges":
                selection = selection | _assets("corpora", "agent_disjoint") | _COMPACT
            jobs.append(dg.define_asset_job(job, selection=selection, description=description))
    return jobs
