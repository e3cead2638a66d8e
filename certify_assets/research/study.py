"""The study of a data root: its profiles, stages, and what became of them in the last run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.harvest.loop import quick_learner
from certify_assets.judges.specs import PROCEDURES
from certify_assets.judges.transfer import gather_pool
from certify_assets.research.harvest_study import HarvestPlan, learner_maker, run_harvests
from certify_assets.storage.progress import Report, silent
from certify_assets.storage.store import Store

#: stands where a corpus would, for stages over all of them
ALL = "all"
RUN_KEY = "study/run.json"
#: folder of the pages of the study
SITE = "study/site"
_SCHEMA = "certify_assets/study_run/1"
#: outcomes of a stage whose documents are there
THERE = ("done", "kept")
_STUDY = "certify research study CORPUS"
_FULL = f"{_STUDY} --profile full"


@dataclass(frozen=True)
class Profile:
    """How much is run."""

    name: str
    # split seeds, from 42 on
    seeds: int
    # calibration sets a design of the simulation
    trials: int
    # whether the language-model judges are trained: minutes each
    language: bool


#: smaller first: what a larger one left is kept by a smaller one
PROFILES = {
    found.name: found for found in (Profile("quick", 20, 20, False), Profile("full", 60, 300, True))
}

#: stage → the command that runs it alone
COMMANDS = {
    "splits": _STUDY,
    "lexical": _STUDY,
    "lexical_weighted": _STUDY,
    "seeds": _STUDY,
    "harvests": "certify research harvest CORPUS",
    "base": _STUDY,
    "sft": _FULL,
    "grpo": _FULL,
    "harvests_sft": "certify research harvest CORPUS --learner sft",
    "lexical_transfer": _STUDY,
    "lexical_transfer_strict": _STUDY,
    "transfer": _FULL,
    "transfer_strict": _FULL,
    "harvests_transfer": _STUDY,
    "agents": "certify judge compare CORPUS --agent-disjoint",
    "real_scores": _STUDY,
    "comparison": "certify judge compare CORPUS",
    "main_table": "certify research study",
    "law": "certify research law --root DIR",
    "simulation": "certify research study",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one stage."""

    corpus: str
    stage: str
    # done, kept, skipped or failed; the last two have a reason
    status: str
    reason: str
    # runs it alone
    command: str
    # of this run; not stored, so that the document is the same for the same inputs
    seconds: float = 0.0


@dataclass(frozen=True)
class StudyRun:
    """What became of the stages of the last run."""

    profile: str
    corpora: tuple[str, ...]
    stages: tuple[Outcome, ...]

    @classmethod
    def from_dict(cls, document: Any) -> StudyRun:
        """Read the stored document."""
        stages = tuple(Outcome(**item) for item in document["stages"])
        return cls(document["profile"], tuple(document["corpora"]), stages)


def save_outcomes(
    store: Store, profile: str, corpora: Sequence[str], outcomes: Sequence[Outcome]
) -> bool:
    """Store what became of a run; return whether that changed the document."""
    stages = []
    # no time, and kept is as good as done, so that a second run leaves the same bytes
    for outcome in outcomes:
        item = {name: value for name, value in asdict(outcome).items() if name != "seconds"}
        stages.append(item | {"status": "done" if outcome.status in THERE else outcome.status})
    document = {"schema": _SCHEMA, "profile": profile, "corpora": list(corpora), "stages": stages}
    before = store.sha256(RUN_KEY) if store.exists(RUN_KEY) else ""
    store.write_json(RUN_KEY, document)
    return store.sha256(RUN_KEY) != before


def load_outcomes(store: Store) -> tuple[Outcome, ...]:
    """Return what became of the stages of the last run; empty where none was."""
    return StudyRun.from_dict(store.read_json(RUN_KEY)).stages if store.exists(RUN_KEY) else ()


def run_language_harvests(
    corpus: Corpus, *, run_id: str, report: Report = silent, say: Callable[[str], None]
) -> None:
    """Harvest with the fine-tuned judge: one loop, because a training takes minutes."""
    plan = HarvestPlan(
        learner="sft",
        # the budget that halves of CAL can certify
        alphas=(0.2,),
        gates=PROCEDURES[:1],
        sides=("reject",),
        profiles=("certify",),
        rounds=1,
    )
    with learner_maker(corpus, "sft", report=report) as make:
        run_harvests(corpus, plan, learner=make, run_id=run_id, say=say)


def run_transfer_harvests(corpus: Corpus, *, run_id: str) -> str:
    """Harvest from a judge that saw no row of the corpus; return why not, or an empty string."""
    if not corpus.config.rl:
        return (
            "the corpus was split without an RL split, so the pool's tasks are not those that the "
            "sources were kept apart from."
        )
    pool = gather_pool(corpus)
    if pool.missing:
        return pool.missing
    run_harvests(
        corpus,
        HarvestPlan(learner="lexical_transfer", profiles=("",)),
        learner=lambda splits: quick_learner(pool.frame, splits.manifest, transfer=True),
        run_id=run_id,
    )
    return ""
