"""What a loop of rounds works with: the learner, the rows, and the measurement of one judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings, audit_certificate, certify
from certify_assets.certificates.auroc import auroc
from certify_assets.judges.harvest.gate import HarvestGate, open_gate
from certify_assets.judges.harvest.measures import rendered_lengths
from certify_assets.judges.harvest.withholding import Pool, Splits, halves, withhold
from certify_assets.judges.judging import columns

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Judge

__all__ = ["Learner", "Loop", "Parts", "gate_of", "measured"]

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Learner:
    """Who learns: a recipe that is trained from its base on whatever rows it is given.

    Attributes
    ----------
    name : str
    source : pandas.DataFrame
        Rows labelled by people: the target's SFT split (in-domain), or SFT rows of other corpora (transfer).
    train : callable
        From rows with outcomes, and a name for the place of their checkpoints, to a judge.
    score : callable
        From a judge and trajectories to a score table.
    transfer : bool
        Whether the source holds no row of the target: its SFT split is then part of the pool, labels withheld.
    dear : bool
        Whether a training takes minutes: of the controls then only those are trained that stand for the labels of half A.
    trainings : dict of str to dict
        What a training told of itself (settings, steps, loss), by its name; empty where it tells nothing.
    """

    name: str
    source: pd.DataFrame
    train: Callable[[pd.DataFrame, str], Judge]
    score: Callable[[Judge, pd.DataFrame], pd.DataFrame]
    transfer: bool = False
    dear: bool = False
    trainings: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Loop:
    """One loop over rounds: everything that stays the same in it.

    Attributes
    ----------
    splits : Splits
    learner : Learner
    settings : Settings
        Of the gate; half B is certified with the same, and with those of `beside`.
    rounds : int
    seed : int
        Of the halves.
    beside : tuple of str
        Procedures whose certificates of half B stand beside the gate's.
    say : callable
        Told what is done, one sentence at a time.
    """

    splits: Splits
    learner: Learner
    settings: Settings
    rounds: int = 1
    seed: int = 42
    beside: tuple[str, ...] = ("guarded_taskboot", "taskboot")
    say: Say = field(default=lambda _: None)

    @property
    def label(self) -> int:
        """The pseudo-label."""
        return 0 if self.settings.side == "reject" else 1

    def pool(self) -> Pool:
        """Trajectories to harvest from, outcomes withheld: the unseen RL split, and SFT where the source is of other corpora."""
        import pandas as pd

        parts = [self.splits.sft, self.splits.rl] if self.learner.transfer else [self.splits.rl]
        return withhold(
            pd.concat([part for part in parts if len(part)], ignore_index=True)
            if any(map(len, parts))
            else self.splits.rl
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of one loop: halves of CAL and the pool."""

    half_a: pd.DataFrame
    half_b: pd.DataFrame
    pool: Pool

    @classmethod
    def of(cls, loop: Loop) -> Parts:
        """Cut them from the splits."""
        return cls(*halves(loop.splits.cal, loop.seed), loop.pool())

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Characters of the pool's rendered runs."""
        return rendered_lengths(self.pool.frame)


def gate_of(loop: Loop, parts: Parts, judge: Judge) -> tuple[HarvestGate, pd.DataFrame]:
    """Open or close the gate of a judge on half A; return it with the judge's scores of the pool, which carry no outcome."""
    import pandas as pd

    frames = [parts.half_a, parts.pool.frame]
    # bets are fixed on the learner's own labels: no task of them is in CAL, and no outcome of the pool is read
    pilot = loop.settings.procedure == "betting"
    scored = loop.learner.score(
        judge, pd.concat([*frames, loop.learner.source] if pilot else frames, ignore_index=True)
    )
    ends = np.cumsum([len(frame) for frame in frames])
    half, pool = scored.iloc[: ends[0]], scored.iloc[ends[0] : ends[1]].reset_index(drop=True)
    return open_gate(half, loop.settings, scored.iloc[ends[1] :] if pilot else None), pool


def measured(loop: Loop, parts: Parts, judge: Judge, about: dict[str, Any]) -> dict[str, Any]:
    """Certify a judge on half B with the gate's procedure and those beside it, and audit each certificate on TEST."""
    import pandas as pd

    scored = loop.learner.score(
        judge, pd.concat([parts.half_b, loop.splits.test], ignore_index=True)
    )
    half_b, test = scored.iloc[: len(parts.half_b)], scored.iloc[len(parts.half_b) :]
    cells = {}
    # betting takes a pilot of its own and is a gate here, not what a judge is deployed with
    names = dict.fromkeys(
        [*([] if loop.settings.procedure == "betting" else [loop.settings.procedure]), *loop.beside]
    )
    for name in names:
        given = {
            key: getattr(loop.settings, key)
            for key in ("alpha", "delta", "side", "grid", "guard", "seed")
        }
        certificate = certify(*columns(half_b), **given, procedure=name)
        audit = audit_certificate(certificate, *columns(test))
        cells[name] = {
            "half_b_coverage": certificate.coverage,
            "threshold": certificate.threshold,
            "test_coverage": audit.coverage,
            "test_error": audit.realized_error,
            "test_own_coverage": audit.own_coverage,
            "verdict": audit.verdict if certificate.certified else None,
        }
    return {
        **about,
        "adapter_sha256": judge.provenance().adapter_sha256,
        "auroc_half_b": _known(auroc(*columns(half_b)[:2])),
        "auroc_test": _known(auroc(*columns(test)[:2])),
        "certificates": cells,
    }


def _known(area: float) -> float | None:
    """None where the rows have one outcome and nothing can be ranked."""
    return area if np.isfinite(area) else None
