"""Harvests of a corpus: rounds of CertHarvest, controls without a certificate, and their table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings, evaluate, measure_threshold, observe
from certify_assets.corpora.config import plan_splits
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.splits import select
from certify_assets.files import canonical_json, sha256_bytes, significant
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.certharvest import (
    HALVES_SEED,
    certharvest,
    contamination,
    halves,
    training_set,
    withhold,
)
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, DELTA, PROCEDURES
from certify_assets.operations.ledger import LedgerEntry, announce_study, record_result
from certify_assets.research.harvest_learners import Learner, Splits

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.judges.base import Judge

# a row of the stored document, as JSON values
Row = dict[str, Any]

_SHARES = (0.25, 0.5)


@dataclass(frozen=True)
class HarvestPlan:
    """The plan, fixed before TEST is read: a loop for each alpha, gate, side and profile."""

    learner: str = "lexical"
    alphas: tuple[float, ...] = ALPHAS
    gates: tuple[str, ...] = (PROCEDURES[0], "taskboot")
    sides: tuple[str, ...] = ("reject", "release")
    # an empty one is the corpus's own
    profiles: tuple[str, ...] = ("certify", "paper")
    # fixed beforehand: no rule decides when to stop
    rounds: int = 2

    def to_dict(self) -> Row:
        """Return the plan as JSON values."""
        document: Row = json.loads(json.dumps(asdict(self)))
        return document


@dataclass(frozen=True, eq=False)
class Loop:
    """Rounds of one learner with one gate: their common settings and data."""

    splits: Splits
    learner: Learner
    # of the gate, and of the certificates of half B
    settings: Settings
    half_a: pd.DataFrame
    half_b: pd.DataFrame
    pool: pd.DataFrame
    # outcomes of the pool: nothing that trains or decides reads them
    withheld: NDArray[np.int8]

    @classmethod
    def of(cls, splits: Splits, learner: Learner, settings: Settings) -> Loop:
        """Split CAL in halves, and take the pool: RL, and SFT if the training source is another
        corpus.
        """
        import pandas as pd

        parts = [splits.sft, splits.rl] if learner.transfer else [splits.rl]
        whole = pd.concat([part for part in parts if len(part)] or [splits.rl], ignore_index=True)
        return cls(splits, learner, settings, *halves(splits.cal), *withhold(whole))

    def measured(self, judge: Judge) -> Row:
        """Certify a judge on half B, and audit the certificate on TEST (a row of Table 4)."""
        half_b = self.learner.score(judge, self.half_b)
        test = self.learner.score(judge, self.splits.test)
        half, audited = observe(*columns(half_b)), observe(*columns(test))
        # no certificate: its findings, which nothing reads here, cost most of one
        found = evaluate(half, self.settings)
        audit = measure_threshold(audited, self.settings, found.threshold)
        own = evaluate(audited, self.settings).chosen_coverage if audited.scored else None
        return {
            "adapter_sha256": judge.provenance().adapter_sha256,
            "auroc_half_b": judge_auroc(half_b),
            "auroc_test": judge_auroc(test),
            "half_b_coverage": significant(found.chosen_coverage),
            "threshold": found.threshold,
            "test_coverage": audit.coverage,
            "test_error": audit.realized_error,
            "test_own_coverage": own,
            "verdict": None if found.threshold is None else audit.verdict,
        }

    def run(self, rounds: int, say: Callable[[str], None]) -> Row:
        """Run the rounds (Table 7) and their controls."""
        learner = self.learner
        start = judge = learner.train(learner.source)
        known = {"round": 0, "trained_on": len(learner.source), "pseudo_labels": 0}
        rows = [{**known, **self.measured(judge)}]
        for number in range(1, rounds + 1):
            row, trained = self._round(judge, number)
            taken = row["harvest"]
            say(
                f"round {number}: {taken['gate']['reason']} {taken['size']} of {taken['pool']} "
                "harvested."
            )
            rows.append(row)
            if trained is None:
                break
            judge = trained
        tasks = [int(half["task_id"].nunique()) for half in (self.half_a, self.half_b)]
        return {
            "learner": learner.name,
            "start": "transfer" if learner.transfer else "in-domain",
            "side": self.settings.side,
            "alpha": self.settings.alpha,
            "gate": self.settings.procedure,
            "halves": {"seed": HALVES_SEED, "tasks_a": tasks[0], "tasks_b": tasks[1]},
            "rounds": rows,
            "controls": self._controls(start, rows[1]["harvest"]["size"]),
            "profile": self.splits.manifest.profile,
        }

    def _round(self, judge: Judge, number: int) -> tuple[Row, Judge | None]:
        learner = self.learner
        pool = learner.score(judge, self.pool)
        harvest = certharvest(
            learner.score(judge, self.half_a),
            pool,
            learner.source,
            learner.train,
            settings=self.settings,
            manifest=self.splits.manifest,
        )
        found = {
            **contamination(harvest, pool, self.withheld),
            "gate": harvest.gate.to_dict(),
        }
        row: Row = {"round": number, "harvest": found}
        if harvest.judge is None:
            return {**row, "skipped": harvest.reason}, None
        counts = {"trained_on": len(harvest.training), "pseudo_labels": found["size"]}
        return {**row, **counts, **self.measured(harvest.judge)}, harvest.judge

    def _controls(self, start: Judge, size: int) -> list[Row]:
        """Train controls: on labels of half A, and on parts of the pool without a certificate."""
        import pandas as pd

        learner, half_a = self.learner, self.half_a
        spent = pd.concat([learner.source, half_a], ignore_index=True).astype({"outcome": "int8"})
        judge = learner.train(spent, spent=set(half_a["task_id"]))
        about = {"trained_on": len(spent), "labels": len(half_a)}
        rows: list[Row] = [{"control": "labels_of_half_a", **about, **self.measured(judge)}]
        scores = learner.score(start, self.pool)["score"].to_numpy(np.float64)
        label = 0 if self.settings.side == "reject" else 1
        for name, taken in uncertified_cuts(scores, self.settings, size).items():
            wrong = float(np.mean(self.withheld[taken] != label)) if taken.any() else None
            row = {"control": name, "size": int(taken.sum()), "pool": len(scores)}
            row["contamination"] = wrong
            if taken.any() and not learner.costly:
                training = training_set(
                    learner.source, self.pool[taken], label=label, manifest=self.splits.manifest
                )
                row |= self.measured(learner.train(training))
            rows.append(row)
        return rows


def uncertified_cuts(
    scores: NDArray[np.float64], settings: Settings, size: int
) -> dict[str, NDArray[np.bool_]]:
    """Choose rows of a pool without a certificate."""
    sign = 1.0 if settings.side == "reject" else -1.0
    keys = np.where(np.isnan(scores), np.inf, sign * scores)
    order = np.argsort(keys, kind="stable")
    end = "lowest" if sign > 0 else "highest"
    counts = {f"{end}_{share:.0%}": int(share * len(scores)) for share in _SHARES}
    counts = {f"{end}_as_many": size, **counts} if size else counts
    cuts = {
        "verdict": keys < 0,
        "confidence": keys <= math.log(settings.alpha / (1 - settings.alpha)),
    }
    for name, count in counts.items():
        taken = np.zeros(len(scores), dtype=bool)
        taken[order[:count]] = True
        cuts[name] = taken & np.isfinite(keys)
    return cuts


def harvests_key(corpus: str, learner: str) -> str:
    """Return the key of the harvests of a corpus by a learner."""
    return f"harvests/{corpus}/{learner}.json"


def run_harvests(
    corpus: Corpus,
    plan: HarvestPlan,
    make: Callable[[Splits], Learner],
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Row:
    """Run every loop of a plan on a corpus; store and return the document."""
    frame, config = corpus.trajectories, corpus.config
    corpus.require_leak_checks()
    loops: list[Row] = []
    for profile in plan.profiles:
        embedded = profile == "paper" and corpus.name in EMBEDDED
        shares = "paper_miniwob" if embedded else profile or config.profile
        split = replace(config, profile=cast(Any, shares), rl=True)
        manifest = plan_splits(split, frame["task_id"].unique())
        splits = _splits(frame, manifest)
        read = _announced(corpus, plan, manifest)
        learner = make(splits)
        made = [
            Loop.of(splits, learner, settings).run(plan.rounds, say) for settings in _settings(plan)
        ]
        record_result(corpus.store, read, sha256_bytes(canonical_json(made)))
        loops += made
    document = harvest_document(corpus.name, plan, loops)
    corpus.store.write_json(harvests_key(corpus.name, plan.learner), document)
    return document


def harvest_document(corpus: str, plan: HarvestPlan, loops: list[Row]) -> Row:
    """Return the study: plan, every loop, and how often a harvest kept its budget."""
    rounds = [(loop["alpha"], row) for loop in loops for row in loop["rounds"]]
    taken = [
        (alpha, row["harvest"])
        for alpha, row in rounds
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
        "gates_closed": sum("skipped" in row for _, row in rounds),
    }


def harvest_rows(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the table of a study: a row for each round; gates share the rows of controls."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for loop in document["loops"]:
        place = {name: str(loop[name]) for name in ("profile", "side")}
        place["alpha"] = f"{loop['alpha']:g}"
        for row in loop["rounds"]:
            name = f"{loop['gate'].removesuffix('_taskboot')} {row['round']}"
            rows[(*place.values(), name)] = {**place, "name": name, **_figures(row)}
        for control in loop["controls"]:
            key = (*place.values(), control["control"], str(control.get("size", "")))
            rows.setdefault(key, {**place, "name": control["control"], **_figures(control)})
    return list(rows.values())


def _figures(row: Row) -> dict[str, str]:
    taken = row.get("harvest", row)
    size = f"{taken['size']}/{taken['pool']}" if "size" in taken else ""
    shown = {
        "wrong": taken.get("contamination"),
        "half B": row.get("half_b_coverage"),
        "TEST own": row.get("test_own_coverage"),
        "TEST deployed": row.get("test_coverage"),
        "TEST error": row.get("test_error"),
    }
    numbers = {name: "" if value is None else f"{value:.3f}" for name, value in shown.items()}
    return {"harvest": f"{row['labels']} labels" if "labels" in row else size, **numbers}


def _splits(frame: pd.DataFrame, manifest: SplitManifest) -> Splits:
    labelled = frame[frame["outcome"].notna()]
    sft, rl, cal, test = (
        select(labelled, manifest, name).reset_index(drop=True)
        for name in ("sft", "rl", "cal", "test")
    )
    return Splits(sft, rl, cal, test, manifest)


def _settings(plan: HarvestPlan) -> Iterable[Settings]:
    for alpha, side, gate in product(plan.alphas, plan.sides, plan.gates):
        yield Settings(
            alpha=alpha, delta=DELTA, side=cast(Any, side), procedure=gate, seed=HALVES_SEED
        )


def _announced(corpus: Corpus, plan: HarvestPlan, manifest: SplitManifest) -> LedgerEntry:
    """Record in the ledger what will be read of TEST, before it is read."""
    fixed = {
        **plan.to_dict(),
        "manifest_sha256": manifest.sha256,
        "delta": DELTA,
        "halves_seed": HALVES_SEED,
    }
    return announce_study(
        corpus, reader=f"harvests of {plan.learner}", plan={"harvests": fixed}, run_id="cli"
    )
