"""Runs that are labelled whatever the judge says: drawn at random before anything is scored.

A share of the tasks is drawn, and of each drawn task one run, or as many as the corpus says. The
task has its chance in the batch that first brings it: runs that come later are not drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

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
    seed: int = 42  # keep it from the authors of agents: it shows which tasks nobody reads

    def __post_init__(self) -> None:
        if not 0.0 <= self.audit_rate <= 1.0:
            raise InputError(f"audit_rate is {self.audit_rate!r}; give a share between 0 and 1.")

    @property
    def runs_seed(self) -> int:
        """The seed of the runs within tasks, which certificates name; it does not give `seed`."""
        digest = hashlib.sha256(f"{self.seed}\0runs".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def draws(self, corpus: str, task: str) -> bool:
        """Whether a task is drawn."""
        # seed, corpus and task and nothing else: no score, outcome or agent, so the draw is as
        # if made before scoring
        digest = hashlib.sha256(f"{self.seed}\0{corpus}\0{task}".encode()).digest()
        uniform = int.from_bytes(digest[:8], "big") / 2.0**64
        return uniform < self.audit_rate


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
    drawn: NDArray[np.bool_], decisions: NDArray[Any], excluded: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Return why each row is in the review queue; "" where it is not."""
    asked = np.where(decisions == "human", "undecided", "").astype(object)
    # what is excluded, a seen task or a run that came before, is no draw from the new ones
    asked[drawn & ~excluded] = "audit_sample"
    return asked


class RunDraw(Document):
    """The drawn runs of a batch."""

    SCHEMA = "certify_assets/draw/3"
    TITLE = "draw"
    REFUSAL = IntegrityError

    deployment: int | None = None  # whose plan drew them; None where no judge was deployed
    plan: SamplingPlan | None = None
    runs: RunsOfTask = RunsOfTask()
    before: tuple[str, ...] = ()  # tasks of the batch that earlier batches brought: not drawn
    drawn: tuple[str, ...]  # runs

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
        able = [(task, run) for task, run in names if task not in before]
        able = [(task, run) for task, run in able if plan.draws(corpus, task)]
        tasks, ids = [task for task, _ in able], [run for _, run in able]
        rows = runs.draw(max(1, len(able))).rows(tasks, ids)
        return cls(
            deployment=number,
            plan=plan,
            runs=runs,
            before=tuple(sorted(before)),
            drawn=tuple(ids[row] for row in sorted(rows.tolist())),
        )

    @classmethod
    def load(cls, corpus: Corpus, batch: str) -> RunDraw:
        """Read the draw of a batch."""
        return cls.from_dict(corpus.store.objects.get_json(received(corpus, batch).objects["draw"]))
