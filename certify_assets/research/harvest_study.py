"""Harvests of one corpus: rounds, controls without a certificate, and the study over all settings.

A round takes the threshold from half A, pseudo-labels the pool, trains from the base again,
certifies on half B and audits on TEST; every combination is read under one registration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.splits import plan_splits, select
from certify_assets.evaluation.ledger import LedgerEntry, announce_study, record_result
from certify_assets.files import canonical_json, sha256_bytes
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
    lexical_learner,
    measured,
)
from certify_assets.judges.record import workplace
from certify_assets.judges.specs import ALPHAS, DELTA, GRID
from certify_assets.storage.progress import Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.judges.base import Judge

_SHARES = (0.25, 0.5)


def controls_of(loop: Loop, parts: Parts, start: Judge, size: int) -> list[dict[str, Any]]:
    """Run the controls of a loop."""
    found = [_labels_spent(loop, parts)]
    table = loop.learner.score(start, parts.pool.frame)
    for name, taken in uncertified_cuts(table["score"].to_numpy(np.float64), loop, size).items():
        about = {
            "control": name,
            "size": int(taken.sum()),
            "pool": len(table),
            "contamination": share_wrong(taken, parts.pool.withheld, loop.label),
        }
        if loop.learner.dear or not taken.any():
            found.append(about)
            continue
        training = training_set(
            loop.learner.source,
            parts.pool.frame[taken],
            label=loop.label,
            manifest=loop.splits.manifest,
        )
        found.append(measured(loop, parts, loop.learner.train(training, name), about))
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


def ranking_of(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Say whether half B orders the rounds as TEST does; None for fewer than two rounds."""
    made = [row for row in rows if "certificates" in row]
    if len(made) < 2:
        return None
    found = {}
    for name in made[0]["certificates"]:
        half_b, test = (
            {row["round"]: row["certificates"][name][key] or 0.0 for row in made}
            for key in ("half_b_coverage", "test_own_coverage")
        )
        orders = [
            [number for _, number in sorted((-share, number) for number, share in by.items())]
            for by in (half_b, test)
        ]
        found[name] = {
            "rounds": [
                {"round": number, "half_b": half_b[number], "test": test[number]}
                for number in half_b
            ],
            "order_half_b": orders[0],
            "order_test": orders[1],
            "agree": orders[0] == orders[1],
        }
    return found


def _labels_spent(loop: Loop, parts: Parts) -> dict[str, Any]:
    """Train on the labels of half A instead of setting a threshold with them."""
    import pandas as pd

    labelled = [
        loop.learner.source.assign(**{LABEL_SOURCE: "human"}),
        parts.half_a.assign(**{LABEL_SOURCE: HALF_A}),
    ]
    training = pd.concat(labelled, ignore_index=True)
    training["outcome"] = training["outcome"].astype("int8")
    about = {
        "control": "labels_of_half_a",
        "trained_on": len(training),
        "labels": len(parts.half_a),
    }
    return measured(loop, parts, loop.learner.train(training, "labels_of_half_a"), about)


def harvest_rounds(loop: Loop, first: Judge | None = None) -> dict[str, Any]:
    """Run the rounds and their controls."""
    parts = Parts.of(loop)
    start = judge = first or loop.learner.train(loop.learner.source, "round_0")
    rows = [
        measured(
            loop,
            parts,
            judge,
            {"round": 0, "trained_on": len(loop.learner.source), "pseudo_labels": 0},
        )
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
            "seed": loop.seed,
            "tasks_a": _tasks(parts.half_a),
            "tasks_b": _tasks(parts.half_b),
        },
        "rounds": rows,
        "controls": controls_of(loop, parts, start, size),
        "ranking": ranking_of(rows),
    }


def _round(loop: Loop, parts: Parts, judge: Judge, number: int) -> tuple[dict[str, Any], Judge]:
    """Harvest with one judge and train the next; nothing harvested keeps the judge."""
    gate, table = gate_of(loop, parts, judge)
    taken = gate.taken(table["score"].to_numpy(np.float64))
    harvested = {
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
    about = {
        "round": number,
        "trained_on": len(training),
        "pseudo_labels": int(taken.sum()),
        "harvest": harvested,
    }
    return measured(loop, parts, trained, about), trained


def _tasks(frame: pd.DataFrame) -> int:
    return int(frame["task_id"].nunique())


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
        Split profiles; an empty one means the corpus's own.
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
    """Return the study: plan, every loop, and how often a harvest kept its budget."""
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
    """Give the maker of a learner, with a place for its checkpoints where a training is costly."""
    if learner == "lexical":
        yield lambda splits: lexical_learner(splits.sft, splits.manifest)
        return
    with workplace(corpus.store, f"harvests/{corpus}/{learner}") as place:
        # checkpoints are of one split: another manifest is another folder
        yield lambda splits: language_learner(
            splits.sft, splits.manifest, place / splits.manifest.sha256[:12], report=report
        )
