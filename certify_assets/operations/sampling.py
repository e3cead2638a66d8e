"""Tasks that are labelled whatever the judge says: drawn at random before anything is scored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document
from certify_assets.errors import InputError, IntegrityError
from certify_assets.operations.batches import received


@dataclass(frozen=True)
class SamplingPlan:
    """How many tasks are drawn, and the seed that draws them."""

    # share of tasks whose every attempt is labelled: they extend CAL and feed the monitor
    audit_rate: float = 0.05
    spot_rate: float = 0.05  # share whose auto-decided attempts are labelled: they feed the monitor
    seed: int = 42  # keep it from the authors of agents: it shows which tasks nobody reads

    def __post_init__(self) -> None:
        for name in ("audit_rate", "spot_rate"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; give a share between 0 and 1."
                )
        if self.audit_rate + self.spot_rate > 1.0:
            raise InputError(
                f"audit_rate and spot_rate add up to {self.audit_rate + self.spot_rate:g}; give "
                "shares of at most 1 together."
            )

    def places(self, corpus: str, tasks: Iterable[str]) -> dict[str, Literal["audit", "spot", ""]]:
        """Return ``audit``, ``spot`` or ``""`` of each task."""
        return {task: self._place(corpus, task) for task in dict.fromkeys(map(str, tasks))}

    def _place(self, corpus: str, task: str) -> Literal["audit", "spot", ""]:
        # seed, corpus and task and nothing else: no score, outcome or agent, so the draw is as
        # if made before scoring, and a task that comes again is drawn as it was
        digest = hashlib.sha256(f"{self.seed}\0{corpus}\0{task}".encode()).digest()
        uniform = int.from_bytes(digest[:8], "big") / 2.0**64
        if uniform < self.audit_rate:
            return "audit"
        return "spot" if uniform < self.audit_rate + self.spot_rate else ""


def asked_rows(
    places: NDArray[Any], decisions: NDArray[Any], excluded: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Return why each row is in the review queue; "" where it is not."""
    asked = np.where(decisions == "human", "undecided", "").astype(object)
    asked[(places == "spot") & np.isin(decisions, ("reject", "release"))] = "spot_check"
    # what is excluded, a seen task or a run that came before, is no draw from the new ones
    asked[(places == "audit") & ~excluded] = "audit_sample"
    return asked


class TaskDraw(Document):
    """The drawn tasks of a batch."""

    SCHEMA = "certify_assets/draw/1"
    TITLE = "draw"
    REFUSAL = IntegrityError

    deployment: int | None = None  # whose plan drew them; None where no judge was deployed
    plan: SamplingPlan | None = None
    drawn: dict[str, Literal["audit", "spot"]]  # of each drawn task

    @classmethod
    def of(cls, number: int, plan: SamplingPlan, corpus: str, tasks: Iterable[str]) -> TaskDraw:
        """Draw tasks by the plan of a deployment."""
        places = plan.places(corpus, sorted(set(tasks)))
        drawn = {task: place for task, place in places.items() if place}
        return cls(deployment=number, plan=plan, drawn=drawn)

    @classmethod
    def load(cls, corpus: Corpus, batch: str) -> TaskDraw:
        """Read the draw of a batch."""
        return cls.from_dict(corpus.store.objects.get_json(received(corpus, batch).objects["draw"]))
