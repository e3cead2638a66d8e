"""Runs that are labelled whatever the judge says: drawn at random before anything is scored.

A share of the tasks is drawn, and of each drawn task one run, or as many as the corpus says. The
task has its chance in the batch that first brings it: runs that come later are not drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.sampling import RUNS, Draw, Estimand
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document
from certify_assets.errors import InputError, IntegrityError
from certify_assets.operations.batches import received

if TYPE_CHECKING:
    from certify_assets.corpora.config import CorpusConfig


@dataclass(frozen=True)
class SamplingPlan:
    """How many tasks are drawn, and the seed that draws them."""

    audit_rate: float = 0.05  # share of tasks whose drawn runs extend CAL and feed the monitor
    spot_rate: float = 0.05  # share whose drawn runs feed the monitor where they are auto-decided
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

    @property
    def runs_seed(self) -> int:
        """The seed of the runs within tasks, which certificates name; it does not give `seed`."""
        digest = hashlib.sha256(f"{self.seed}\0runs".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def places(self, corpus: str, tasks: Iterable[str]) -> dict[str, Literal["audit", "spot", ""]]:
        """Return ``audit``, ``spot`` or ``""`` of each task."""
        return {task: self._place(corpus, task) for task in dict.fromkeys(map(str, tasks))}

    def _place(self, corpus: str, task: str) -> Literal["audit", "spot", ""]:
        # seed, corpus and task and nothing else: no score, outcome or agent, so the draw is as
        # if made before scoring
        digest = hashlib.sha256(f"{self.seed}\0{corpus}\0{task}".encode()).digest()
        uniform = int.from_bytes(digest[:8], "big") / 2.0**64
        if uniform < self.audit_rate:
            return "audit"
        return "spot" if uniform < self.audit_rate + self.spot_rate else ""


@dataclass(frozen=True)
class RunsOfTask:
    """Which runs of a drawn task are labelled, and whose errors a recertification then counts."""

    attempts: int = 1
    estimand: Estimand = "tasks"
    most: int = 1
    seed: int = 42

    @classmethod
    def of(cls, config: CorpusConfig, plan: SamplingPlan) -> Self:
        """Return what the configuration of a corpus asks for."""
        return cls(config.audit_runs, config.estimand, config.most or 1, plan.runs_seed)

    def words(self) -> str:
        """Say what is drawn of a task, and what counts once."""
        counts = "every task counts once"
        if self.estimand == RUNS:
            counts = f"every run counts once, but no task more than {self.most} of them"
        return f"{self.attempts} of a task, drawn by seed {self.seed}; {counts}"

    def draw(self, count: int, sha256: str = "") -> Draw:
        """Return the draw from a table of so many runs, as a certificate names it."""
        return Draw(count, self.attempts, self.estimand, self.most, self.seed, sha256)


def asked_rows(
    places: NDArray[Any], decisions: NDArray[Any], excluded: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Return why each row is in the review queue; "" where it is not."""
    asked = np.where(decisions == "human", "undecided", "").astype(object)
    asked[(places == "spot") & np.isin(decisions, ("reject", "release"))] = "spot_check"
    # what is excluded, a seen task or a run that came before, is no draw from the new ones
    asked[(places == "audit") & ~excluded] = "audit_sample"
    return asked


class RunDraw(Document):
    """The drawn runs of a batch."""

    SCHEMA = "certify_assets/draw/2"
    TITLE = "draw"
    REFUSAL = IntegrityError

    deployment: int | None = None  # whose plan drew them; None where no judge was deployed
    plan: SamplingPlan | None = None
    runs: RunsOfTask = RunsOfTask()
    before: tuple[str, ...] = ()  # tasks of the batch that earlier batches brought: not drawn
    drawn: dict[str, Literal["audit", "spot"]]  # of each drawn run

    @classmethod
    def of(
        cls,
        number: int,
        plan: SamplingPlan,
        runs: RunsOfTask,
        names: Iterable[tuple[str, str]],
        *,
        corpus: str,
        before: Collection[str] = (),
    ) -> RunDraw:
        """Draw from the tasks and runs of a batch by the plan of a deployment."""
        names = sorted(names)
        places = plan.places(corpus, (task for task, _ in names))
        able = [(task, run) for task, run in names if places[task] and task not in before]
        tasks, ids = [task for task, _ in able], [run for _, run in able]
        rows = runs.draw(max(1, len(able))).rows(tasks, ids)
        drawn = {ids[row]: places[tasks[row]] for row in sorted(rows.tolist())}
        return cls(
            deployment=number,
            plan=plan,
            runs=runs,
            before=tuple(sorted(before)),
            drawn=drawn,  # type: ignore[arg-type]
        )

    @classmethod
    def load(cls, corpus: Corpus, batch: str) -> RunDraw:
        """Read the draw of a batch."""
        return cls.from_dict(corpus.store.objects.get_json(received(corpus, batch).objects["draw"]))
