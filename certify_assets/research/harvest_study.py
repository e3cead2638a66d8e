"""Harvests of a corpus: rounds, controls without a certificate, the study over all settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings
from certify_assets.corpora.config import plan_splits
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.splits import select
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.families.transfer import gather_pool
from certify_assets.judges.harvest.gate import (
    HALF_A,
    HALVES_SEED,
    LABEL_SOURCE,
    Splits,
    contamination,
    share_wrong,
    skew,
    training_set,
)
from certify_assets.judges.harvest.loop import (
    Learner,
    Loop,
    Parts,
    gate_of,
    language_learner,
    measured,
    quick_learner,
)
from certify_assets.judges.harvest.rows import (
    ControlRow,
    HarvestDocument,
    HarvestedRound,
    HarvestRow,
    LoopRow,
    PlanRow,
    RankedRound,
    RankingRow,
    RoundRow,
    SpentLabels,
    UntrainedCut,
)
from certify_assets.judges.lm import smollm2
from certify_assets.judges.specs import ALPHAS, DELTA, PROCEDURES
from certify_assets.operations.ledger import LedgerEntry, announce_study, record_result
from certify_assets.work import Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.judges.base import Judge

_SHARES = (0.25, 0.5)


def controls_of(loop: Loop, parts: Parts, start: Judge, size: int) -> list[ControlRow]:
    """Run the controls of a loop."""
    found: list[ControlRow] = [_labels_spent(loop, parts)]
    table = loop.learner.score(start, parts.pool.frame)
    for name, taken in uncertified_cuts(table["score"].to_numpy(np.float64), loop, size).items():
        about: UntrainedCut = {
            "control": name,
            "size": int(taken.sum()),
            "pool": len(table),
            "contamination": share_wrong(taken, parts.pool.withheld, loop.label),
        }
        if loop.learner.costly or not taken.any():
            found.append(about)
            continue
        training = training_set(
            loop.learner.source,
            parts.pool.frame[taken],
            label=loop.label,
            manifest=loop.splits.manifest,
        )
        found.append({**about, **measured(loop, parts, loop.learner.train(training, name))})
    return found


def uncertified_cuts(
    scores: NDArray[np.float64], loop: Loop, size: int
) -> dict[str, NDArray[np.bool_]]:
    """Choose rows of a pool without a certificate."""
    sign = 1.0 if loop.settings.side == "reject" else -1.0
    keys = np.where(np.isnan(scores), np.inf, sign * scores)
    order = np.argsort(keys, kind="stable")
    end = "lowest" if sign > 0 else "highest"
    counts = {f"{end}_{share:.0%}": int(share * len(scores)) for share in _SHARES}
    counts = {f"{end}_as_many": size, **counts} if size else counts
    cuts = {
        "verdict": keys < 0,
        "confidence": keys <= math.log(loop.settings.alpha / (1 - loop.settings.alpha)),
    }
    for name, count in counts.items():
        taken = np.zeros(len(scores), dtype=bool)
        taken[order[:count]] = True
        cuts[name] = taken & np.isfinite(keys)
    return cuts


def ranking_of(rows: Sequence[RoundRow]) -> dict[str, RankingRow] | None:
    """Say whether half B orders the rounds as TEST does; None for fewer than two rounds."""
    made = [row for row in rows if "certificates" in row]
    if len(made) < 2:
        return None
    found: dict[str, RankingRow] = {}
    for name in made[0]["certificates"]:
        rounds: list[RankedRound] = [
            {
                "round": row["round"],
                "half_b": row["certificates"][name]["half_b_coverage"] or 0.0,
                "test": row["certificates"][name]["test_own_coverage"] or 0.0,
            }
            for row in made
        ]
        half_b = [one["round"] for one in sorted(rounds, key=lambda one: -one["half_b"])]
        test = [one["round"] for one in sorted(rounds, key=lambda one: -one["test"])]
        found[name] = {
            "rounds": rounds,
            "order_half_b": half_b,
            "order_test": test,
            "agree": half_b == test,
        }
    return found


def _labels_spent(loop: Loop, parts: Parts) -> SpentLabels:
    """Train on the labels of half A instead of setting a threshold with them."""
    import pandas as pd

    labelled = [
        loop.learner.source.assign(**{LABEL_SOURCE: "human"}),
        parts.half_a.assign(**{LABEL_SOURCE: HALF_A}),
    ]
    training = pd.concat(labelled, ignore_index=True)
    training["outcome"] = training["outcome"].astype("int8")
    name = "labels_of_half_a"
    return {
        "control": name,
        "trained_on": len(training),
        "labels": len(parts.half_a),
        **measured(loop, parts, loop.learner.train(training, name)),
    }


def harvest_rounds(loop: Loop) -> LoopRow:
    """Run the rounds and their controls."""
    parts = Parts.of(loop)
    start = judge = loop.learner.train(loop.learner.source, "round_0")
    rows: list[RoundRow] = [
        {
            "round": 0,
            "trained_on": len(loop.learner.source),
            "pseudo_labels": 0,
            **measured(loop, parts, judge),
        }
    ]
    for number in range(1, loop.rounds + 1):
        row, judge = _round(loop, parts, judge, number)
        rows.append(row)
        if "skipped" in row:
            break
    size = next((row["harvest"]["size"] for row in rows if "harvest" in row), 0)
    return {
        "learner": loop.learner.name,
        "start": "transfer" if loop.learner.transfer else "in-domain",
        "side": loop.settings.side,
        "alpha": loop.settings.alpha,
        "gate": loop.settings.procedure,
        "halves": {
            "seed": HALVES_SEED,
            "tasks_a": _tasks(parts.half_a),
            "tasks_b": _tasks(parts.half_b),
        },
        "rounds": rows,
        "controls": controls_of(loop, parts, start, size),
        "ranking": ranking_of(rows),
        "profile": loop.splits.manifest.profile,
    }


def _round(loop: Loop, parts: Parts, judge: Judge, number: int) -> tuple[RoundRow, Judge]:
    """Harvest with one judge and train the next; nothing harvested keeps the judge."""
    gate, table = gate_of(loop, parts, judge)
    taken = gate.taken(table["score"].to_numpy(np.float64))
    harvested: HarvestRow = {
        **contamination(gate, table, parts.pool),
        "gate": gate.to_dict(),
        "skew": skew(parts.pool.frame, taken, parts.lengths),
    }
    loop.say(f"round {number}: {gate.reason} {harvested['size']} of {harvested['pool']} harvested.")
    if not taken.any():
        reason = gate.reason if not gate.open else "the certified region holds no run of the pool."
        return {"round": number, "skipped": reason, "harvest": harvested}, judge
    training = training_set(
        loop.learner.source,
        parts.pool.frame[taken],
        label=loop.label,
        manifest=loop.splits.manifest,
    )
    trained = loop.learner.train(training, f"round_{number}")
    row: HarvestedRound = {
        "round": number,
        "trained_on": len(training),
        "pseudo_labels": int(taken.sum()),
        "harvest": harvested,
        **measured(loop, parts, trained),
    }
    return row, trained


def _tasks(frame: pd.DataFrame) -> int:
    return int(frame["task_id"].nunique())


LearnerMaker = Callable[["Splits"], Learner]

# learners whose training takes minutes, and the model that each of them fine-tunes
_LANGUAGE_LEARNERS = {"sft": "compact", smollm2.NAME: smollm2.NAME}


@dataclass(frozen=True)
class HarvestPlan:
    """What is harvested, fixed before TEST is read: a loop each alpha, gate, side and profile."""

    learner: str = "lexical"
    alphas: tuple[float, ...] = ALPHAS
    gates: tuple[str, ...] = (PROCEDURES[0], "taskboot", "betting")
    sides: tuple[str, ...] = ("reject", "release")
    # an empty one is the corpus's own
    profiles: tuple[str, ...] = ("certify", "paper")
    # fixed beforehand: no rule decides when to stop
    rounds: int = 2

    def to_dict(self) -> PlanRow:
        """Return the plan as JSON values."""
        return {
            "learner": self.learner,
            "alphas": list(self.alphas),
            "gates": list(self.gates),
            "sides": list(self.sides),
            "profiles": list(self.profiles),
            "rounds": self.rounds,
        }


def harvests_key(corpus: str, learner: str) -> str:
    """Return where the harvests of a corpus by a learner are stored."""
    return f"harvests/{corpus}/{learner}.json"


def run_harvests(
    corpus: Corpus,
    plan: HarvestPlan | None = None,
    *,
    learner: LearnerMaker | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> HarvestDocument:
    """Run every loop of a plan on a corpus, store and return the document."""
    plan = plan or HarvestPlan()
    make = learner or (lambda splits: quick_learner(splits.sft, splits.manifest))
    frame, config = corpus.trajectories, corpus.config
    corpus.require_leak_checks()
    loops: list[LoopRow] = []
    for profile in plan.profiles:
        shares = (
            f"{profile}_miniwob"
            if profile == "paper" and corpus.name in EMBEDDED
            else profile or config.profile
        )
        split = replace(config, profile=cast(Any, shares), rl=True)
        manifest = plan_splits(split, frame["task_id"].unique())
        splits = _splits(frame, manifest)
        read = _announced(corpus, plan, manifest)
        made = [harvest_rounds(loop) for loop in _loops(splits, make, plan, say)]
        record_result(corpus.store, read, sha256_bytes(canonical_json(made)))
        loops += made
    document = harvest_document(corpus.name, plan, loops)
    corpus.store.write_json(harvests_key(corpus.name, plan.learner), document)
    return document


def harvest_document(corpus: str, plan: HarvestPlan, loops: list[LoopRow]) -> HarvestDocument:
    """Return the study: plan, every loop, and how often a harvest kept its budget."""
    taken = [
        (loop["alpha"], row["harvest"])
        for loop in loops
        for row in loop["rounds"]
        if "harvest" in row and row["harvest"]["size"]
    ]
    return {
        "corpus": corpus,
        "plan": plan.to_dict(),
        "halves_seed": HALVES_SEED,
        "loops": loops,
        "harvests": len(taken),
        "within_budget": sum((one["contamination"] or 0.0) <= alpha for alpha, one in taken),
        "beyond_chance": sum(one["verdict"] == "ERROR" for _, one in taken),
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
        settings = Settings(alpha=alpha, delta=DELTA, side=side, procedure=gate, seed=HALVES_SEED)
        yield Loop(splits, learner, settings, plan.rounds, say=say)


def _announced(corpus: Corpus, plan: HarvestPlan, manifest: SplitManifest) -> LedgerEntry:
    """Write into the ledger what will be read of TEST, before it is."""
    fixed = {
        **plan.to_dict(),
        "manifest_sha256": manifest.sha256,
        "delta": DELTA,
        "halves_seed": HALVES_SEED,
    }
    return announce_study(
        corpus, reader=f"harvests of {plan.learner}", plan={"harvests": fixed}, run_id="cli"
    )


@contextmanager
def learner_maker(
    corpus: Corpus, learner: str, *, report: Report = silent
) -> Iterator[LearnerMaker]:
    """Give the maker of a learner, with a place for its checkpoints where a training is costly."""
    start, _, transfer = learner.partition("_")
    elsewhere = None
    if transfer:
        pool = gather_pool(corpus)
        if pool.missing:
            raise InputError(pool.missing)
        elsewhere = pool.frame

    def source(splits: Splits) -> pd.DataFrame:
        return splits.sft if elsewhere is None else elsewhere

    if start not in _LANGUAGE_LEARNERS:
        yield lambda splits: quick_learner(
            source(splits), splits.manifest, start, transfer=bool(transfer)
        )
        return
    with corpus.store.workplace(f"harvests/{corpus}/{learner}") as place:
        # checkpoints are of one split: another manifest is another folder
        yield lambda splits: language_learner(
            source(splits),
            splits.manifest,
            place / splits.manifest.sha256[:12],
            name=start,
            model=_LANGUAGE_LEARNERS[start],
            transfer=bool(transfer),
            report=report,
        )
