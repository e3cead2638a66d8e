"""Which tasks people read whatever the judge says: drawn at random by task, before anything is scored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError

__all__ = ["SamplingPlan", "draw_tasks"]


@dataclass(frozen=True)
class SamplingPlan:
    """How many tasks are drawn.

    Parameters
    ----------
    audit_rate : float
        Share of tasks whose every attempt is labelled: they extend CAL and feed the monitor.
    spot_rate : float
        Share of tasks whose auto-decided attempts are labelled: they feed the monitor alone.
    seed : int
        Of the draw. Keep it from those who write the agents: whoever knows it knows which tasks nobody reads.
    """

    audit_rate: float = 0.05
    spot_rate: float = 0.05
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("audit_rate", "spot_rate"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; give a share between 0 and 1."
                )
        if self.audit_rate + self.spot_rate > 1.0:
            raise InputError(
                f"audit_rate and spot_rate add up to {self.audit_rate + self.spot_rate:g}; give shares of at most 1 together."
            )


def draw_tasks(plan: SamplingPlan, corpus: str, tasks: Iterable[str]) -> NDArray[np.str_]:
    """Say of each task whether it is drawn.

    Parameters
    ----------
    plan : SamplingPlan
    corpus : str
    tasks : iterable of str, length n

    Returns
    -------
    ndarray of str, shape (n,)
        ``audit``, ``spot`` or ``""``. The draw hashes seed, corpus and task and nothing else: no score, no outcome, no agent, so that it
        is as if made before scoring, and a task that comes again in a later batch is drawn as it was.
    """
    names = np.asarray(list(tasks), dtype=object)
    known = {task: _place(plan, corpus, str(task)) for task in dict.fromkeys(names.tolist())}
    return np.array([known[task] for task in names.tolist()], dtype="<U5")


def _place(plan: SamplingPlan, corpus: str, task: str) -> str:
    digest = hashlib.sha256(f"{plan.seed}\0{corpus}\0{task}".encode()).digest()
    uniform = int.from_bytes(digest[:8], "big") / 2.0**64
    if uniform < plan.audit_rate:
        return "audit"
    return "spot" if uniform < plan.audit_rate + plan.spot_rate else ""
