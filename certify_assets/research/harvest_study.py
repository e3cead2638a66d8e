"""Every harvest of one corpus side by side: gates, budgets, split profiles, sides and seeds, each read on TEST under one registration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from certify_assets.certificates import Settings
from certify_assets.corpora.config import EMBEDDED
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import plan_splits, select
from certify_assets.evaluation.ledger import LedgerEntry, announce_study, record_result
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.harvest.learners import language_learner, lexical_learner
from certify_assets.judges.harvest.loop import Learner, Loop
from certify_assets.judges.harvest.withholding import HALVES_SEED, Splits
from certify_assets.judges.judging import workplace
from certify_assets.judges.specs import ALPHAS, DELTA, GRID
from certify_assets.research.harvest_rounds import harvest_rounds
from certify_assets.storage.progress import Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest

__all__ = ["HarvestPlan", "harvest_document", "learner_maker", "run_harvests"]

LearnerMaker = Callable[["Splits"], Learner]


@dataclass(frozen=True)
class HarvestPlan:
    """What is harvested, fixed before TEST is read.

    Parameters
    ----------
    learner : str
        Name of the recipe.
    alphas, gates, sides : tuple
        Each combination is a loop of its own.
    profiles : tuple of str
        Split profiles; an empty one stands for the corpus's own.
    rounds : int
        Fixed: no rule decides when to stop.
    """

    learner: str = "lexical"
    alphas: tuple[float, ...] = ALPHAS
    gates: tuple[str, ...] = ("guarded_taskboot", "taskboot", "betting")
    sides: tuple[str, ...] = ("reject", "release")
    profiles: tuple[str, ...] = ("certify", "paper")
    rounds: int = 2

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }


def run_harvests(
    corpus: Corpus,
    plan: HarvestPlan | None = None,
    *,
    learner: LearnerMaker | None = None,
    run_id: str = "cli",
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run every loop of a plan on a corpus, store and return the document.

    Parameters
    ----------
    store, corpus
    plan : HarvestPlan, optional
    learner : callable, optional
        Makes the learner from splits; by default the lexical judge on the target's SFT split.
    run_id : str
        For the ledger.
    say : callable
        Told what is done.

    Raises
    ------
    LeakError
        If the corpus has a structural leak that nobody accepted.
    """
    plan = plan or HarvestPlan()
    make = learner or (lambda splits: lexical_learner(splits.sft, splits.manifest))
    frame, config = corpus.trajectories, corpus.config
    corpus.require_leak_checks()
    loops = []
    for profile in plan.profiles:
        shares = (
            f"{profile}_miniwob"
            if profile == "paper" and corpus.name in EMBEDDED
            else profile or config.profile
        )
        manifest = plan_splits(replace(config, profile=shares, rl=True), frame["task_id"].unique())
        splits = _splits(frame, manifest)
        read = _announced(corpus, plan, manifest, run_id)
        made = [
            {**harvest_rounds(loop), "profile": manifest.profile}
            for loop in _loops(splits, make, plan, say)
        ]
        record_result(corpus.store, read, sha256_bytes(canonical_json(made)))
        loops += made
    document = harvest_document(corpus.name, plan, loops)
    corpus.store.write_json(f"harvests/{corpus}/{plan.learner}.json", document)
    return document


def harvest_document(corpus: str, plan: HarvestPlan, loops: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a study of harvests says: its plan, every loop, and over all of them how often a harvest kept its budget."""
    taken = [
        row["harvest"]
        for loop in loops
        for row in loop["rounds"]
        if row.get("harvest", {}).get("size")
    ]
    budgets = [
        loop["alpha"]
        for loop in loops
        for row in loop["rounds"]
        if row.get("harvest", {}).get("size")
    ]
    return {
        "corpus": corpus,
        "plan": plan.to_dict(),
        "halves_seed": HALVES_SEED,
        "loops": loops,
        "harvests": len(taken),
        "within_budget": sum(
            one["contamination"] <= alpha for one, alpha in zip(taken, budgets, strict=True)
        ),
        "beyond_chance": sum(one["verdict"] == "ERROR" for one in taken),
        "gates_closed": sum("skipped" in row for loop in loops for row in loop["rounds"]),
    }


def _splits(frame: pd.DataFrame, manifest: SplitManifest) -> Splits:
    labelled = frame[frame["outcome"].notna()]
    sft, rl, cal, test = (
        select(labelled, manifest, name).reset_index(drop=True)
        for name in ("sft", "rl", "cal", "test")
    )
    return Splits(sft, rl, cal, test, manifest)


def _loops(
    splits: Splits, make: LearnerMaker, plan: HarvestPlan, say: Callable[[str], None]
) -> Iterator[Loop]:
    learner = make(splits)
    for alpha, side, gate in product(plan.alphas, plan.sides, plan.gates):
        settings = Settings(
            alpha=alpha, delta=DELTA, grid=GRID, side=side, procedure=gate, seed=HALVES_SEED
        )
        yield Loop(splits, learner, settings, plan.rounds, HALVES_SEED, say=say)


def _announced(
    corpus: Corpus, plan: HarvestPlan, manifest: SplitManifest, run_id: str
) -> LedgerEntry:
    """Write into the ledger what will be read of TEST, before it is."""
    fixed = {
        **plan.to_dict(),
        "manifest_sha256": manifest.sha256,
        "delta": DELTA,
        "grid": GRID,
        "halves_seed": HALVES_SEED,
    }
    return announce_study(
        corpus, reader=f"harvests of {plan.learner}", plan={"harvests": fixed}, run_id=run_id
    )


@contextmanager
def learner_maker(
    corpus: Corpus, learner: str, *, report: Report = silent
) -> Iterator[LearnerMaker]:
    """Give the maker of a learner, with a place for its checkpoints where a training is dear.

    Parameters
    ----------
    learner : {"lexical", "sft"}
    report : callable
        Told how far a training has come that takes minutes.
    """
    if learner == "lexical":
        yield lambda splits: lexical_learner(splits.sft, splits.manifest)
        return
    with workplace(corpus.store, f"harvests/{corpus}/{learner}") as place:
        # checkpoints are of one split: another manifest is another folder
        yield lambda splits: language_learner(
            splits.sft, splits.manifest, place / splits.manifest.sha256[:12], report=report
        )
