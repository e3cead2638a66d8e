"""The whole study as one asset: every stage on every corpus, as `certify research study` runs it, with what it made observed on the assets that hold it."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from certify_assets.defs.names import OWNERS, RESEARCH_GROUP, judge_key, key
from certify_assets.defs.partitions import CORPORA
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.specs import JUDGES

if TYPE_CHECKING:
    from certify_assets.research.study import Outcome

__all__ = ["study_job", "study_run", "study_run_passed"]

_CORPUS = (
    "trajectories",
    "split_manifest",
    "sft_split",
    "rl_split",
    "cal_split",
    "test_split",
    "profile",
    "leak_controls",
)
_CHAIN = ("model", "scores", "certificate", "audit")
_OF_CORPUS = {
    "splits": tuple(f"corpora/{name}" for name in _CORPUS),
    "seeds": ("research/seed_study",),
    "harvests": ("research/harvests",),
    "agents": ("corpora/agent_disjoint",),
    "real_scores": ("research/real_scores",),
    "comparison": ("corpora/comparison",),
}
_OVER_ALL = {
    "main_table": "research/main_table",
    "law": "research/certifiability",
    "simulation": "research/simulation",
}


class StudyConfig(dg.Config):
    """What is run.

    Parameters
    ----------
    profile : str
        quick, or full with the language models.
    corpora : list of str
        All registered ones where none is named.
    workers : int
        Processes, a corpus each.
    """

    profile: str = "quick"
    corpora: list[str] = Field(default_factory=list)
    workers: int = 2


@dg.asset(
    kinds={"json"},
    key_prefix="research",
    group_name=RESEARCH_GROUP,
    owners=OWNERS,
    code_version="1",
    description=(
        "Every stage of the study on every corpus: splits, judges, split seeds, harvests, transfer, real scores, comparison, law, simulation. What stands is "
        "kept, so that a killed run goes on. A materialization of it is one of every asset that a stage made anew."
    ),
)
def study_run(
    context: dg.AssetExecutionContext,
    config: StudyConfig,
    data_root: DataRoot,
    mlflow: MlflowTracker,
) -> dg.MaterializeResult[Any]:
    """Run the study and report each stage."""
    from certify_assets.research.full_study import run_full_study

    store = data_root.store()
    outcomes = run_full_study(
        store, config.corpora, profile=config.profile, workers=config.workers, say=context.log.info
    )
    context.instance.add_dynamic_partitions(
        CORPORA, sorted({item.corpus for item in outcomes} - {"all"})
    )
    for outcome in outcomes:
        for made in materializations(outcome):
            context.log_event(made)
    counts = {
        f"stages_{name}": number
        for name, number in sorted(Counter(item.status for item in outcomes).items())
    }
    recorded = mlflow.record(context, store, params=config.model_dump(), metrics=counts)
    return dg.MaterializeResult(
        metadata={"stages": dg.MetadataValue.md(stage_table(outcomes)), **counts, **recorded}
    )


@dg.asset_check(
    asset=key("research/study_run"),
    description="No stage of the last study failed; what was skipped has its reason in the report.",
)
def study_run_passed(data_root: DataRoot) -> dg.AssetCheckResult:
    """Read the stored outcomes."""
    from certify_assets.research.study import load_outcomes

    failed = [
        f"{item.corpus}, {item.stage}: {item.reason}"
        for item in load_outcomes(data_root.store())
        if item.status == "failed"
    ]
    return dg.AssetCheckResult(
        passed=not failed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=" ".join(failed) or "no stage failed.",
    )


def materializations(outcome: "Outcome") -> list[dg.AssetMaterialization]:
    """Return what a stage that was run made anew, asset by asset; nothing for one that was kept, skipped or failed."""
    if outcome.status != "done":
        return []
    keys = (
        [judge_key(outcome.stage, name) for name in _CHAIN]
        if outcome.stage in JUDGES
        else [key(name) for name in _assets(outcome.stage)]
    )
    partition = None if outcome.stage in _OVER_ALL else outcome.corpus
    return [
        dg.AssetMaterialization(
            made, partition=partition, metadata={"made_by": "study_run", "stage": outcome.stage}
        )
        for made in keys
    ]


def _assets(stage: str) -> Sequence[str]:
    if stage in _OVER_ALL:
        return (_OVER_ALL[stage],)
    return _OF_CORPUS.get(stage, ())


def stage_table(outcomes: "Sequence[Outcome]") -> str:
    """Return the stages as a Markdown table: stage, how many corpora are at which state."""
    states = ("done", "kept", "skipped", "failed")
    counts = Counter((item.stage, item.status) for item in outcomes)
    lines = ["| stage | " + " | ".join(states) + " |", "|---|" + "---|" * len(states)]
    for stage in dict.fromkeys(item.stage for item in outcomes):
        lines.append(
            f"| {stage} | " + " | ".join(str(counts[stage, state] or "") for state in states) + " |"
        )
    return "\n".join(lines)


study_job = dg.define_asset_job(
    "research_study",
    selection=dg.AssetSelection.assets(key("research/study_run"), key("research/report"))
    | dg.AssetSelection.checks_for_assets(key("research/study_run")),
    description="The whole study and its site, as `certify research study` makes them: minutes with quick, hours with full. Goes on where a killed one stopped.",
)
