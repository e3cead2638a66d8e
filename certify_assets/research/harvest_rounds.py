"""The rounds of CertHarvest: threshold from half A, pseudo-labels, training from the base again, certificate from half B, audit on TEST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.judges.harvest.loop import Loop, Parts, gate_of, measured
from certify_assets.judges.harvest.measures import contamination, skew
from certify_assets.judges.harvest.withholding import training_set
from certify_assets.research.harvest_controls import controls_of, ranking_of

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Judge

__all__ = ["harvest_rounds"]


def harvest_rounds(loop: Loop, first: Judge | None = None) -> dict[str, Any]:
    """Run the rounds and their controls.

    Parameters
    ----------
    loop : Loop
    first : Judge, optional
        The judge of round 0, where it is trained already.

    Returns
    -------
    dict
        ``rounds`` (round 0 is the start), ``controls``, ``ranking`` (whether CAL could have ranked the rounds), ``halves``.

    Notes
    -----
    Half A of a second round is not independent of the judge that it gates, which was trained on what half A let through in the first; half B
    and TEST are. The threshold's promise is on the population of runs below it, not on the finite pool.
    """
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
    """Harvest with one judge and train the next; where nothing is harvested the judge stays and the row says why."""
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
