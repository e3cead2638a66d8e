"""Versions of a corpus: every delivery that changes its runs makes one, with the changes.

A corpus is imported as often as files arrive. The table of runs is replaced each time. Each version
leaves an event and the small table that it names: id, task, agent, outcome and hashes of the texts
of every run. Registrations of the TEST ledger name the version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.trajectory import (
    Trajectory,
    instruction_sha256,
    letters_sha256,
    trajectory_sha256,
)
from certify_assets.errors import InputError
from certify_assets.storage.events import Discarded, Payload

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.storage.store import Store

_SHOWN = 5


def run_table(runs: Iterable[Trajectory]) -> pd.DataFrame:
    """Return id, task, agent, outcome and hashes of the texts of runs.

    Columns are trajectory_id, task_id, agent, outcome, content, instruction and letters.
    """
    import pandas as pd

    rows = [
        (
            *(run.trajectory_id, run.task_id, run.agent, run.outcome),
            trajectory_sha256(run),
            instruction_sha256(run.instruction),
            letters_sha256(run.instruction, map(attrgetter("action", "observation"), run.steps)),
        )
        for run in runs
    ]
    names = ["trajectory_id", "task_id", "agent", "outcome", "content", "instruction", "letters"]
    return pd.DataFrame(rows, columns=names).astype({"outcome": "Int8"})


def renamed_tasks(known: pd.DataFrame, table: pd.DataFrame) -> dict[str, str]:
    """Map the tasks that only `table` has to the one task of `known` with their instruction.

    Both have columns task_id and instruction (hashed). An instruction that several tasks of `known`
    share is left out.
    """
    columns = ["task_id", "instruction"]
    asked = known[columns].drop_duplicates()
    asked = asked[(asked["instruction"] != "") & ~asked["instruction"].duplicated(keep=False)]
    new = table[columns].drop_duplicates().sort_values(columns)
    new = new[~new["task_id"].isin(set(known["task_id"]))]
    same = new.merge(asked, on="instruction", suffixes=("", "_known")).sort_values(columns)
    same = same.drop_duplicates("task_id")
    return dict(zip(same["task_id"], same["task_id_known"], strict=True))


def same_runs(runs: pd.DataFrame, others: pd.DataFrame) -> int:
    """Count the runs that another table has too, even under other names or with other spaces.

    Texts that several tasks of one table share do not count.
    """

    def letters(table: pd.DataFrame) -> pd.Series[Any]:
        shared = table.groupby("letters")["task_id"].transform("nunique") > 1
        return table["letters"].mask(shared, "")

    same = runs["content"].isin(set(others["content"]))
    return int((same | letters(runs).isin(set(letters(others)) - {""})).sum())


@dataclass(frozen=True)
class RunChanges:
    """The changes of a delivery to the runs of a corpus."""

    # size of the corpus afterwards
    runs: int
    tasks: int
    # by the split of their task; a run is the same run while its texts are, whatever its id
    new_runs: Mapping[str, int] = field(default_factory=dict)
    gone_runs: Mapping[str, int] = field(default_factory=dict)
    # runs whose outcome is another one, or is known for the first time, by split
    changed_labels: Mapping[str, int] = field(default_factory=dict)
    # by the split they are assigned to; other tasks keep their split
    new_tasks: Mapping[str, int] = field(default_factory=dict)
    gone_tasks: int = 0
    # new tasks whose instruction is that of one task before, which may be the same
    renamed: Mapping[str, str] = field(default_factory=dict)
    new_agents: tuple[str, ...] = ()

    @classmethod
    def between(
        cls, before: pd.DataFrame | None, after: pd.DataFrame, manifest: SplitManifest | None
    ) -> RunChanges:
        """Compare two tables of `run_table`; `manifest` is that of the later one."""
        splits = {} if manifest is None else manifest.assignment_so_far
        if before is None:
            before = after.iloc[:0]

        def by_split(tasks: Iterable[str]) -> dict[str, int]:
            return dict(sorted(Counter(splits.get(task, "") for task in tasks).items()))

        old, new = _bag(before), _bag(after)
        # copies of one text have no order, so their labels are compared as a bag
        labelled = _labelled(before) & _labelled(after)
        same = Counter(run for run, _ in labelled.elements())
        tasks_before, tasks_after = set(before["task_id"]), set(after["task_id"])
        return cls(
            runs=len(after),
            tasks=len(tasks_after),
            new_runs=by_split(task for task, _ in (new - old).elements()),
            gone_runs=by_split(task for task, _ in (old - new).elements()),
            changed_labels=by_split(task for task, _ in ((old & new) - same).elements()),
            new_tasks=by_split(tasks_after - tasks_before),
            gone_tasks=len(tasks_before - tasks_after),
            renamed=renamed_tasks(before, after),
            new_agents=tuple(sorted(set(after["agent"]) - set(before["agent"]))),
        )

    def sentences(self) -> list[str]:
        """Return a sentence for every kind of change."""
        said = []
        for what, counts in (
            ("new runs", self.new_runs),
            ("runs are gone", self.gone_runs),
            ("new tasks", self.new_tasks),
            ("runs have another label than before", self.changed_labels),
        ):
            if counts:
                parts = [f"{name.upper() or 'no split'} {n}" for name, n in counts.items()]
                said.append(f"{sum(counts.values())} {what} ({', '.join(parts)}).")
        if self.gone_tasks:
            said.append(f"{self.gone_tasks} tasks have no run any more; their split is kept.")
        if self.renamed:
            new, known = next(iter(self.renamed.items()))
            said.append(
                f"{len(self.renamed)} new tasks have the instruction of a known task, such as "
                f"{new!r} (known as {known!r}). Give a task the id that it had; otherwise it may "
                "be in two splits."
            )
        if self.new_agents:
            more = len(self.new_agents) - _SHOWN
            others = f" and {more} more" if more > 0 else ""
            said.append(f"New agents: {', '.join(self.new_agents[:_SHOWN])}{others}.")
        return said or ["No run changes: these are the runs that the corpus has."]


#: a task, and the hash of the texts of one of its runs
_Run = tuple[str, str]


def _bag(table: pd.DataFrame) -> Counter[_Run]:
    """Count the runs of every text."""
    return Counter(zip(table["task_id"], table["content"], strict=True))


def _labelled(table: pd.DataFrame) -> Counter[tuple[_Run, int | None]]:
    """Count the runs of every text and label."""
    runs = zip(table["task_id"], table["content"], strict=True)
    return Counter(zip(runs, _labels(table), strict=True))


def _labels(table: pd.DataFrame) -> list[int | None]:
    return [None if value != value else int(value) for value in table["outcome"].astype(float)]


def relabelled(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """Return the ids of runs of `before` that have a different label, or no label, in `after`.

    A run is identified by its texts, or by its id if the texts are gone.
    """
    by_id = dict(zip(after["trajectory_id"], _labels(after), strict=True))
    # copies of one text have no order, so their labels are compared as a bag
    left, there = _labelled(after), _bag(after)
    gone = _bag(before) - there
    found = []
    columns = (before[name] for name in ("trajectory_id", "task_id", "content"))
    for name, task, content, label in zip(*columns, _labels(before), strict=True):
        run = task, content
        if run not in there:
            if name in by_id and by_id[name] != label:
                found.append(str(name))
        elif left[run, label]:
            left[run, label] -= 1
        elif gone[run]:
            gone[run] -= 1
        else:
            found.append(str(name))
    return found


def left_out(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of `before` whose texts and ids are both missing in `after`."""
    there, names = _bag(after), set(after["trajectory_id"])
    gone = []
    columns = (before[column] for column in ("trajectory_id", "task_id", "content"))
    for place, (name, task, content) in enumerate(zip(*columns, strict=True)):
        there[task, content] -= 1
        if there[task, content] < 0 and name not in names:
            gone.append(place)
    return before.iloc[gone]


class Delivered(Payload):
    """A version of a corpus; ``objects`` name its table of runs, made by `run_table`."""

    kind = "delivered"
    # from 1; 0 for runs that no delivery brought
    number: int
    trajectories_sha256: str
    # SHA-256 of each source file
    files: Mapping[str, str] = {}
    changes: RunChanges | None = None

    @property
    def registered(self) -> dict[str, str | int]:
        """The version as the TEST ledger registers it."""
        return {"trajectories_sha256": self.trajectories_sha256, "version": self.number}


class Deliveries:
    """The versions of one corpus."""

    def __init__(self, store: Store, corpus: str) -> None:
        self._store, self._corpus = store, corpus

    def read(self) -> list[Delivered]:
        """Return the versions, the oldest first."""
        return [entry.content for entry in self._store.events(self._corpus, Delivered)]

    def runs(self, delivery: Delivered) -> pd.DataFrame:
        """Return the table of the runs of a version."""
        return self._store.objects.get_table(delivery.objects["runs"])

    def last_runs(self) -> pd.DataFrame | None:
        """Return the table of the runs of the last version."""
        self.require_kept()
        stored = self.read()
        return self.runs(stored[-1]) if stored else None

    def require_kept(self) -> None:
        """Refuse a corpus that was removed and discarded."""
        named = {version.objects["runs"] for version in self.read()}
        for entry in self._store.events(self._corpus, Discarded):
            if named.intersection(entry.content.discarded):
                # nobody could say any more what of it was certified before
                raise InputError(
                    f"{self._corpus} was removed and its objects were discarded "
                    f"({entry.content.reason}), so its name cannot be used again; import the runs "
                    "under another one."
                )

    def record(
        self,
        trajectories_sha256: str,
        table: pd.DataFrame,
        manifest: SplitManifest | None,
        files: Mapping[str, str],
    ) -> None:
        """Add a version."""
        version = Delivered(
            number=len(self.read()) + 1,
            trajectories_sha256=trajectories_sha256,
            objects={"runs": self._store.objects.put_table(table)},
            files=files,
            changes=RunChanges.between(self.last_runs(), table, manifest),
        )
        self._store.append(self._corpus, version)
