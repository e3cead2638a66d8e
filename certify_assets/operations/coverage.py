"""Which runs of a batch the corpus certificate covers, and what becomes of the others."""

# The corpus certificate is on new tasks of the agents in CAL. An agent is the name that the format
# gives its runs, version and all where the source states one. Where it does not, another version
# comes under the same name: an agent whose runs score otherwise than its runs in CAL, beyond
# chance, counts as new. A change of configuration that moves no score is not seen. Where the
# covered runs of a batch are decided in another share than CAL, none of the batch is covered.

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from certify_assets.judges.task_folds import score_unseen, training_tasks

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from certify_assets.judges.judged import JudgedCorpus
    from certify_assets.work import Report

# probability at which an agent of CAL is taken for another one by mistake, over a whole batch
_LEVEL: Final = 0.01
# tasks with fewer of which, in CAL or in the batch, scores of an agent are not compared
_FEWEST: Final = 10
_SHOWN: Final = 5


@dataclass(frozen=True, eq=False)
class Coverage:
    """Of every run of a batch: whether the corpus certificate covers it, and if not, why."""

    policy: str  # `CorpusConfig.new_agents`
    splits: NDArray[np.str_]  # split of each run's task; empty for a new one
    reasons: NDArray[np.object_]  # a code of `decisions.NOT_COVERED`; empty where it is covered
    known_agents: tuple[str, ...]  # those of CAL
    new_agents: tuple[str, ...]  # agents without a run in CAL
    changed_agents: tuple[str, ...]  # agents of CAL whose runs score otherwise now
    unscored: str  # why runs of training tasks have no score; empty where all have one
    shifts: tuple[str, ...] = ()  # how the covered runs differed from CAL, so that none is covered

    @classmethod
    def none(cls, runs: int) -> Coverage:
        """Return the coverage of a batch that is refused: nothing is said of any run."""
        empty = np.zeros(runs, dtype="<U4")
        return cls("", empty, np.full(runs, "", dtype=object), (), (), (), "")

    @property
    def provisional(self) -> NDArray[np.bool_]:
        """Runs that wait for a certificate of their batch, if it is worth its labels."""
        waits = {
            "batch_certificate": ("known_task", "new_agent", "shifted"),
            "accept": ("known_task", "shifted"),
        }
        return np.isin(self.reasons, waits.get(self.policy, ()))

    @property
    def by_corpus(self) -> NDArray[np.bool_]:
        """Runs that the corpus certificate decides."""
        accepted = ("", "new_agent") if self.policy == "accept" else ("",)
        return np.isin(self.reasons, accepted)

    def without(self, shifts: Sequence[str]) -> Coverage:
        """Return the coverage of a batch whose covered runs are not like CAL: none is covered."""
        if not shifts:
            return self
        reasons = np.where(self.by_corpus, "shifted", self.reasons).astype(object)
        return replace(self, reasons=reasons, shifts=tuple(shifts))

    def findings(self, agents: pd.Series[str], expected: str) -> Iterator[tuple[str, str]]:
        """Say which runs are not covered, and what decides them.

        `expected` says what labels of a draw would decide; it is empty where none may be drawn.
        """
        fate = expected or "Reviewers decide them."
        if seen := Counter(name for name in self.splits.tolist() if name):
            text = ", ".join(f"{number} of {name.upper()}" for name, number in sorted(seen.items()))
            yield (
                "seen_tasks",
                f"{sum(seen.values())} runs are of tasks of the splits ({text}), and the corpus "
                f"certificate is about new tasks. {fate}",
            )
        if trained := int((self.reasons == "trained_task").sum()):
            yield (
                "trained_tasks",
                f"{trained} runs are of tasks that the judge was trained on. {self.unscored} "
                "Reviewers decide them.",
            )
        if self.policy == "accept":
            fate = "The corpus accepts them, so its certificate decides them."
        if self.new_agents:
            rows = int(agents.isin(self.new_agents).sum())
            yield (
                "new_agents",
                f"{rows} runs are of agents that CAL lacks ({_shown(self.new_agents)}; CAL has "
                f"{_shown(self.known_agents)}). {fate}",
            )
        if self.changed_agents:
            rows = int(agents.isin(self.changed_agents).sum())
            yield (
                "changed_agents",
                f"{rows} runs are of agents of CAL whose scores are different now "
                f"({_shown(self.changed_agents)}), as those of another version are. {fate}",
            )
        for sentence in self.shifts:
            yield "shifted", f"{sentence} {expected or 'Reviewers decide its runs.'}"


def _shown(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def cover(
    judge: JudgedCorpus, runs: pd.DataFrame, scored: pd.DataFrame, policy: str, report: Report
) -> tuple[Coverage, pd.DataFrame, NDArray[np.object_]]:
    """Return what the corpus certificate covers, the scores to decide by, and whose they are.

    A run of a task that the judge was trained on is scored by one that never saw the task.
    """
    manifest = judge.corpus.manifest
    splits = np.array([manifest.assignment.get(task, "") for task in runs["task_id"]], dtype="<U4")
    adapters = np.full(len(runs), judge.artifact.adapter_sha256, dtype=object)
    trained = runs["task_id"].isin(training_tasks(judge)).to_numpy(bool)
    unscored = ""
    if trained.any() and policy != "review":
        scored, unseen, unscored = score_unseen(judge, runs, scored)
        adapters[trained] = unseen[trained]
    without = trained & np.isnan(scored["score"].to_numpy(np.float64))
    calibration = judge.calibration[0]
    known = tuple(sorted(set(calibration["agent"])))
    new = tuple(sorted(set(runs["agent"]).difference(known)))
    fresh = scored.assign(agent=runs["agent"], task_id=runs["task_id"])[splits == ""]
    changed = changed_agents(calibration, fresh[fresh["agent"].isin(known)])
    reasons = np.full(len(runs), "", dtype=object)
    reasons[runs["agent"].isin({*new, *changed}).to_numpy(bool)] = "new_agent"
    reasons[splits != ""] = "known_task"
    reasons[without] = "trained_task"
    found = Coverage(policy, splits, reasons, known, new, changed, unscored)
    return found, scored, adapters


def changed_agents(before: pd.DataFrame, now: pd.DataFrame) -> tuple[str, ...]:
    """Return the agents whose scores of new tasks differ from those in CAL beyond chance.

    One run a task is compared, the first, by the test of Kolmogorov and Smirnov: tasks are drawn
    alike where nothing has changed, however many attempts they have.
    """
    from scipy.special import kolmogorov

    agents = sorted(set(now["agent"]))
    found = []
    for agent in agents:
        first, second = (_one_a_task(frame[frame["agent"] == agent]) for frame in (before, now))
        if min(first.size, second.size) < _FEWEST:
            continue
        every = np.concatenate([first, second])
        shares = [
            np.searchsorted(np.sort(part), every, "right") / part.size for part in (first, second)
        ]
        distance = float(np.abs(shares[0] - shares[1]).max())
        effective = first.size * second.size / (first.size + second.size)
        if kolmogorov(math.sqrt(effective) * distance) < _LEVEL / len(agents):
            found.append(agent)
    return tuple(found)


def _one_a_task(frame: pd.DataFrame) -> NDArray[np.float64]:
    rows = frame[frame["score"].notna()].sort_values(["task_id", "attempt", "trajectory_id"])
    return np.asarray(rows.drop_duplicates("task_id")["score"], dtype=np.float64)
