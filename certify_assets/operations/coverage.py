"""Which runs of a batch the corpus certificate covers, and whether those are like CAL.

Deliveries may be so small that one alone shows nothing, so a batch is compared together with those
before it. Earlier batches are read, never decided again.
"""

# The corpus certificate is on new tasks of the agents in CAL. An agent is the name that the format
# gives its runs, version and all where the source states one. Where it does not, another version
# comes under the same name: an agent whose runs score otherwise than its runs in CAL, beyond
# chance, counts as new. A change of configuration that moves no score is not seen. Where the
# covered runs of a batch are decided in another share than CAL, none of the batch is covered.
# A batch is compared alone, with the batches before it up to 40 tasks, which sees a change soon,
# and with those up to 200 tasks, which sees a small one. The level of a comparison is what the
# tasks since the last one add (`certificates.shift.spent_level`), divided among the groups that
# differ. What was compared is an object of the batch: the next delivery reads from it how much is
# spent, and so needs no table of a batch before the groups.

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.certificates import Certificate
from certify_assets.certificates.shift import (
    LEAST_CAL_TASKS,
    LEAST_NEW_TASKS,
    TaskTest,
    compare_tasks,
    spent_level,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document
from certify_assets.judges.task_folds import score_unseen, training_tasks
from certify_assets.operations.batches import BatchRecord, batch_names, decided
from certify_assets.operations.decisions import decisions_of
from certify_assets.words import WORDS, percent

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
        return cls(empty, np.full(runs, "", dtype=object), (), (), (), "")

    @property
    def provisional(self) -> NDArray[np.bool_]:
        """Runs that wait for a certificate of their batch, if it is worth its labels."""
        return np.isin(self.reasons, ["known_task", "new_agent", "shifted"])

    @property
    def by_corpus(self) -> NDArray[np.bool_]:
        """Runs that the corpus certificate decides."""
        return np.isin(self.reasons, [""])

    def without(self, shifts: Sequence[str]) -> Coverage:
        """Return the coverage of a batch whose covered runs are not like CAL: none is covered."""
        if not shifts:
            return self
        reasons = np.where(self.by_corpus, "shifted", self.reasons).astype(object)
        return replace(self, reasons=reasons, shifts=tuple(shifts))

    def findings(self, agents: pd.Series[str], expected: str) -> Iterator[tuple[str, str]]:
        """Say which runs are not covered, and what decides them.

        `expected` says what labels of a draw would decide; it is empty where none is drawn.
        """
        fate = expected or "Reviewers decide them."
        if seen := Counter(name for name in self.splits.tolist() if name):
            text = ", ".join(f"{seen[name]:,} of {name.upper()}" for name in sorted(seen))
            yield (
                "seen_tasks",
                f"{sum(seen.values()):,} runs are of tasks of the splits ({text}), but the corpus "
                f"certificate is about new tasks. {fate}",
            )
        if trained := int((self.reasons == "trained_task").sum()):
            yield (
                "trained_tasks",
                f"{trained:,} runs are of tasks that the judge was trained on. {self.unscored} "
                "Reviewers decide them.",
            )
        if self.new_agents:
            rows = int(agents.isin(self.new_agents).sum())
            yield (
                "new_agents",
                f"{rows:,} runs are of agents that CAL lacks ({_shown(self.new_agents)}; CAL has "
                f"{_shown(self.known_agents)}). {fate}",
            )
        if self.changed_agents:
            rows = int(agents.isin(self.changed_agents).sum())
            yield (
                "changed_agents",
                f"{rows:,} runs are of agents of CAL whose scores have changed "
                f"({_shown(self.changed_agents)}), perhaps because the agent has. {fate}",
            )
        for sentence in self.shifts:
            yield "shifted", f"{sentence} {expected or 'Reviewers decide its runs.'}"


def _shown(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def cover(
    judge: JudgedCorpus, runs: pd.DataFrame, scored: pd.DataFrame, report: Report
) -> tuple[Coverage, pd.DataFrame, NDArray[np.object_]]:
    """Return what the corpus certificate covers, the scores to decide by, and whose they are.

    A run of a task that the judge was trained on is scored by one that never saw the task.
    """
    manifest = judge.corpus.manifest
    splits = np.array([manifest.assignment.get(task, "") for task in runs["task_id"]], dtype="<U4")
    adapters = np.full(len(runs), judge.artifact.adapter_sha256, dtype=object)
    trained = runs["task_id"].isin(training_tasks(judge)).to_numpy(bool)
    unscored = ""
    if trained.any():
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
    found = Coverage(splits, reasons, known, new, changed, unscored)
    return found, scored, adapters


def changed_agents(before: pd.DataFrame, now: pd.DataFrame) -> tuple[str, ...]:
    """Return the agents whose scores of new tasks differ from those in CAL beyond chance.

    Compares the first run of each task by the Kolmogorov–Smirnov test, because tasks, not attempts,
    are drawn independently.
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


#: tasks up to which earlier batches join a batch
GROUP_TASKS: Final = (40, 200)
# earlier batches that are looked at for them
_MOST_BATCHES: Final = 40
_SHOWN_BATCHES: Final = 3
_COLUMNS = ["trajectory_id", "task_id", "score"]
_DECIDED: Final = (*_COLUMNS, "reason", "certificate_sha256", "adapter_sha256")


class BatchComparison(Document):
    """How a batch was compared with CAL."""

    SCHEMA = "certify_assets/comparison/1"

    batch: str
    certificates: tuple[str, ...] = ()  # that decided when it was counted; empty until some did
    tasks: int = 0  # of the covered runs of all batches that these decided one after another
    spent: int = 0  # those of them at the last comparison, whose level is spent
    compared: tuple[dict[str, Any], ...] = ()  # the groups: batches, tasks, level, tests

    @classmethod
    def of(cls, corpus: Corpus, record: BatchRecord) -> BatchComparison:
        """Return how a decided batch was compared."""
        return cls.from_dict(corpus.store.objects.get_json(record.objects["comparison"]))


@dataclass(frozen=True)
class Compared:
    """The document of a comparison, and what its findings say."""

    document: BatchComparison
    unlike: tuple[str, ...] = ()  # how the covered runs differ from CAL
    too_few: str = ""  # why they were not compared


@dataclass(frozen=True)
class _Group:
    """Covered runs of a batch, with those of batches before it."""

    batches: tuple[str, ...]
    rows: pd.DataFrame

    @property
    def tasks(self) -> int:
        return int(self.rows["task_id"].nunique())


def compare_batch(
    corpus: Corpus,
    judge: JudgedCorpus | None,
    used: Sequence[Certificate],
    batch: str,
    covered: pd.DataFrame,
) -> Compared:
    """Compare the runs of a batch that certificates cover with CAL, earlier batches included."""
    names, before = tuple(item.sha256 for item in used), _before(corpus, batch)
    if judge is None or not names:
        return Compared(before.replace(batch=batch, compared=()))
    if before.certificates != names:
        before = BatchComparison(batch=batch)
    rows = _scored(judge, covered)
    count = before.tasks + int(rows["task_id"].nunique())
    document = BatchComparison(batch=batch, certificates=names, tasks=count, spent=before.spent)
    if rows.empty:
        return Compared(document)
    cal = judge.calibration[0]
    groups = _groups(judge, batch, names, rows)
    found = [(group, tests) for group in groups if (tests := _tests(cal, group, used))]
    if not found:
        return Compared(document, too_few=_too_few(cal, groups[-1]))
    share = (spent_level(count) - spent_level(before.spent)) / len(found)
    compared = tuple(
        {
            "batches": list(group.batches),
            "tasks": group.tasks,
            "level": share,
            "tests": [asdict(test) for test in tests],
        }
        for group, tests in found
    )
    document = document.replace(spent=count, compared=compared)
    for group, tests in found:
        unlike = [test for test in tests if test.p_value <= share * test.part]
        if unlike:
            # one change moves several: the last says it best, the share that a side decides
            return Compared(document, (_sentence(group, unlike[-1]),))
    return Compared(document)


def _tests(cal: pd.DataFrame, group: _Group, used: Sequence[Certificate]) -> list[TaskTest]:
    thresholds = {
        item.side: item.threshold for item in used if item.certified and item.threshold is not None
    }
    before, after = (
        (part["score"].to_numpy(np.float64), part["task_id"].tolist()) for part in (cal, group.rows)
    )
    return compare_tasks(before, after, thresholds)


def _sentence(group: _Group, test: TaskTest) -> str:
    """Say how covered runs differ from CAL, and which earlier batches do."""
    where = f"{group.tasks:,} new tasks"
    if test.name == "order":
        what = (
            f"The scores of {where} differ from those of CAL: the median task has "
            f"{test.batch:.3g}, in CAL {test.calibration:.3g}"
        )
    else:
        what = (
            f"The {WORDS[test.name]} threshold decides {percent(test.batch)} of the runs of "
            f"{where}, and {percent(test.calibration)} of those of CAL"
        )
    said = (
        f"{what} (p = {test.p_value:.1g}). So the corpus certificate decides no run of this batch."
    )
    if others := group.batches[:-1]:
        shown = ", ".join(others[-_SHOWN_BATCHES:])
        shown += ", …" if len(others) > _SHOWN_BATCHES else ""
        said += (
            f" Its decisions on {len(others):,} earlier batches ({shown}) stay. Have some of their "
            "runs labelled."
        )
    return said


def _too_few(cal: pd.DataFrame, group: _Group) -> str:
    if (known := int(cal["task_id"].nunique())) < LEAST_CAL_TASKS:
        few = (
            f"CAL has {known} tasks, and {LEAST_CAL_TASKS} are needed to compare new runs with it."
        )
    else:
        few = (
            f"There are {group.tasks:,} new tasks so far, and {LEAST_NEW_TASKS} are needed to "
            "compare them with CAL."
        )
    return f"{few} Until then, runs unlike those of CAL are decided too."


def _groups(
    judge: JudgedCorpus, batch: str, certificates: tuple[str, ...], rows: pd.DataFrame
) -> list[_Group]:
    """Return the batch alone and with those before it, the smallest group first, each once."""
    import pandas as pd

    found = [_Group((batch,), rows)]
    parts, names, tasks = [rows], [batch], set(rows["task_id"])
    earlier = islice(_earlier(judge, batch, certificates), _MOST_BATCHES)
    limits = list(GROUP_TASKS)
    while limits:
        if len(tasks) < limits[0] and (item := next(earlier, None)) is not None:
            name, more = item
            if not more.empty:
                parts, names = [more, *parts], [name, *names]
                tasks |= set(more["task_id"])
            continue
        limits = limits[1:]
        if len(names) > len(found[-1].batches):
            found.append(_Group(tuple(names), pd.concat(parts, ignore_index=True)))
    return found


def _earlier(
    judge: JudgedCorpus, batch: str, certificates: tuple[str, ...]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give the covered runs of earlier batches that the same certificates decided, newest first.

    Up to the last batch that waited as unlike CAL and that its own certificate cleared.
    """
    corpus, adapter = judge.corpus.current, judge.artifact.adapter_sha256
    for name in reversed(batch_names(corpus)):
        if name == batch:
            continue
        record = decided(corpus, name).content
        if BatchComparison.of(corpus, record).certificates not in ((), certificates):
            return
        rows = corpus.store.objects.get_table(record.objects["decisions"], _DECIDED)
        if set(rows["certificate_sha256"]) - {"", ";".join(certificates)}:
            return
        held = (rows["reason"] == "shifted").to_numpy()
        if held.any() and (decisions_of(corpus, name)["reason"] == "batch_certificate").any():
            return
        inside = held | (rows["certificate_sha256"] != "").to_numpy()
        inside &= (rows["adapter_sha256"] == adapter).to_numpy()
        yield name, _scored(judge, rows[inside])


def _before(corpus: Corpus, batch: str) -> BatchComparison:
    """Return the document of the last batch that was decided."""
    # one that was taken back has spent its level all the same
    last = corpus.last(BatchRecord)
    if last is None:
        return BatchComparison(batch=batch)
    return BatchComparison.of(corpus, last.content)


def _scored(judge: JudgedCorpus, frame: pd.DataFrame) -> pd.DataFrame:
    # runs of known tasks are the same work, not new draws of it
    known = frame["task_id"].isin(list(judge.corpus.manifest.assignment))
    return frame.loc[~known & frame["score"].notna(), _COLUMNS]
