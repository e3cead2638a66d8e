"""Versions of a corpus: every delivery that changes its runs is one, with what it changed.

A corpus is imported as often as files arrive. The table of runs is replaced each time. What stays
is an event for each version, and the small table that it names: id, task, agent, outcome and hashes
of the texts of every run. Registrations of the TEST ledger name the version.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.schema import Trajectory, read_groups
from certify_assets.files import sha256_bytes
from certify_assets.names import plain_names
from certify_assets.storage.events import Payload

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.storage.store import Store

_NAMED: Final = ("trajectory_id", "task_id", "agent", "outcome")
_COLUMNS: Final = (*_NAMED, "instruction", "steps")
_SHOWN = 5
_SPACES: Final = b" \t\n\r\v\f"
# signs of arithmetic are none: 3 - 1 and 3 + 1 are two tasks
_PUNCTUATION: Final = ".,;:!?…\"'`´()[]{}«»‹›“”„‘’‚¿¡"


def content_sha256(task: str, agent: str, instruction: str, steps: Iterable[Sequence[str]]) -> str:
    """Hash what makes a run this run, whatever its id, its file and its label: texts, in order."""
    content = [task, agent, instruction, [list(step) for step in steps]]
    return sha256_bytes(json.dumps(content).encode("ascii"))


def letters_sha256(instruction: str, steps: Iterable[Sequence[str]]) -> str:
    """Hash the texts of a run without their spaces, which other names leave as they are.

    Empty for a run without texts.
    """
    # bytes.translate takes a tenth of the time of splitting into words, and every import pays it
    texts = [instruction, *(text for step in steps for text in step)]
    letters = [text.encode("utf-8", "surrogatepass").translate(None, _SPACES) for text in texts]
    return sha256_bytes(b"\0".join(letters)) if any(letters) else ""


# attempts at a task ask the same
@lru_cache(maxsize=1024)
def instruction_sha256(text: str) -> str:
    """Hash the words of an instruction; empty where it has none.

    Case, spaces, invisible signs, forms of Unicode and punctuation around words do not count.
    """
    plain = plain_names([text])[0].casefold()
    words = [word for part in plain.split() if (word := part.strip(_PUNCTUATION))]
    return sha256_bytes(json.dumps(words).encode("ascii"))[:32] if words else ""


def renamed_tasks(known: pd.DataFrame, table: pd.DataFrame) -> dict[str, str]:
    """Map the tasks that only `table` has to the one task of `known` with their instruction.

    Both have task_id and instruction, hashed; an instruction that several tasks of `known` share
    says nothing.
    """
    owners: dict[str, set[str]] = {}
    for task, text in set(zip(known["task_id"], known["instruction"], strict=True)):
        owners.setdefault(text, set()).add(task)
    names = set(known["task_id"])
    found: dict[str, str] = {}
    for task, text in sorted(set(zip(table["task_id"], table["instruction"], strict=True))):
        same = owners.get(text, set()) if text else set()
        if task not in names and len(same) == 1:
            found.setdefault(str(task), *same)
    return found


def trajectory_sha256(trajectory: Trajectory) -> str:
    """Hash what makes a run this run, as `content_sha256`."""
    steps = [(step.action, step.observation) for step in trajectory.steps]
    return content_sha256(trajectory.task_id, trajectory.agent, trajectory.instruction, steps)


def reading_contents(path: Path, tasks: Collection[str]) -> list[str]:
    """Return the hashes by which the TEST ledger knows the runs of some tasks again."""
    # two a run: of its texts as they are, and of its words alone, which another name of its agent
    # or task, or other spaces, does not change
    found: set[str] = set()
    for table in read_groups(path, _COLUMNS):
        for row in table.to_pylist():
            if row["task_id"] not in tasks:
                continue
            steps = [(step["action"], step["observation"]) for step in row["steps"]]
            found.add(content_sha256(row["task_id"], row["agent"], row["instruction"], steps))
            words = [[" ".join(text.split()) for text in step] for step in steps]
            found.add(content_sha256("", "", " ".join(row["instruction"].split()), words))
    return sorted(found)


def run_table(path: Path) -> pd.DataFrame:
    """Read id, task, agent, outcome and hashes of texts of the runs of a stored corpus."""
    rows = (row for table in read_groups(path, _COLUMNS) for row in table.to_pylist())
    return _table(
        (row, [(step["action"], step["observation"]) for step in row["steps"]]) for row in rows
    )


def run_table_of(trajectories: Iterable[Trajectory]) -> pd.DataFrame:
    """Return the table of `run_table` for runs that are not stored."""
    return _table(
        (
            {name: getattr(each, name) for name in (*_NAMED, "instruction")},
            [(step.action, step.observation) for step in each.steps],
        )
        for each in trajectories
    )


def _table(runs: Iterable[tuple[Mapping[str, Any], list[tuple[str, str]]]]) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (
            *(run[name] for name in _NAMED),
            content_sha256(run["task_id"], run["agent"], run["instruction"], steps),
            instruction_sha256(run["instruction"]),
            letters_sha256(run["instruction"], steps),
        )
        for run, steps in runs
    ]
    names = [*_NAMED, "content", "instruction", "letters"]
    return pd.DataFrame(rows, columns=names).astype({"outcome": "Int8"})


def same_runs(runs: pd.DataFrame, others: pd.DataFrame) -> int:
    """Count the runs that another table has too, under whatever names and with whatever spaces.

    Texts that several tasks of either table share say nothing.
    """
    same = runs["content"].isin(set(others["content"]))
    same |= _telling(runs).isin(set(_telling(others)) - {""})
    return int(same.sum())


def _telling(runs: pd.DataFrame) -> pd.Series[Any]:
    shared = runs.groupby("letters")["task_id"].transform("nunique") > 1
    return runs["letters"].mask(shared, "")


@dataclass(frozen=True)
class RunChanges:
    """What a delivery changes about the runs of a corpus."""

    # size of the corpus afterwards
    runs: int
    tasks: int
    unlabelled: int
    # by the split of their task; a run is the same run while its texts are, whatever its id
    new_runs: Mapping[str, int] = field(default_factory=dict)
    gone_runs: Mapping[str, int] = field(default_factory=dict)
    # runs that are new, and go, under one id
    changed_texts: int = 0
    # runs whose outcome is another one, or is known for the first time, by split
    changed_labels: Mapping[str, int] = field(default_factory=dict)
    # by the split they are assigned to; other tasks keep their split
    new_tasks: Mapping[str, int] = field(default_factory=dict)
    gone_tasks: int = 0
    # new tasks whose instruction is that of one task before, which may be the same
    renamed: Mapping[str, str] = field(default_factory=dict)
    new_agents: tuple[str, ...] = ()
    gone_agents: tuple[str, ...] = ()

    @classmethod
    def between(
        cls, before: pd.DataFrame | None, after: pd.DataFrame, manifest: SplitManifest | None
    ) -> RunChanges:
        """Compare two tables of `run_table`; `manifest` is that of the later one."""
        splits = {} if manifest is None else manifest.assignment_so_far
        if before is None:
            before = after.iloc[:0]
        old, new = _bag(before), _bag(after)
        # copies of one text have no order, so their labels are compared as a bag
        same: Counter[_Run] = Counter()
        for (run, _), number in (_labelled(before) & _labelled(after)).items():
            same[run] += number
        names_before = dict(zip(before["trajectory_id"], before["content"], strict=True))
        names_after = zip(after["trajectory_id"], after["content"], strict=True)
        tasks_before, tasks_after = set(before["task_id"]), set(after["task_id"])
        return cls(
            runs=len(after),
            tasks=len(tasks_after),
            unlabelled=int(after["outcome"].isna().sum()),
            new_runs=_by_split(new - old, splits),
            gone_runs=_by_split(old - new, splits),
            changed_texts=sum(
                names_before.get(name, content) != content for name, content in names_after
            ),
            changed_labels=_by_split((old & new) - same, splits),
            new_tasks=_by_split(Counter((task, "") for task in tasks_after - tasks_before), splits),
            gone_tasks=len(tasks_before - tasks_after),
            renamed=renamed_tasks(before, after),
            new_agents=tuple(sorted(set(after["agent"]) - set(before["agent"]))),
            gone_agents=tuple(sorted(set(before["agent"]) - set(after["agent"]))),
        )

    @property
    def any(self) -> bool:
        """Whether a run, its text or its label is another one."""
        return bool(self.new_runs or self.gone_runs or self.changed_labels)

    def sentences(self) -> list[str]:
        """Say what changes, a sentence for every kind of change."""
        found = [
            (self.new_runs, "{} new runs ({})."),
            (self.gone_runs, "{} runs are gone ({})."),
            (self.new_tasks, "{} new tasks ({}); every other task keeps its split."),
            (self.changed_labels, "{} runs have another label than before ({})."),
        ]
        said = [
            text.format(
                sum(counts.values()),
                ", ".join(f"{name.upper() or 'no split'} {n}" for name, n in counts.items()),
            )
            for counts, text in found
            if counts
        ]
        if self.gone_tasks:
            said.append(f"{self.gone_tasks} tasks have no run any more; their split is kept.")
        if self.renamed:
            new, known = next(iter(self.renamed.items()))
            said.append(
                f"{len(self.renamed)} of the new tasks have the instruction of a task under "
                f"another id, such as {new!r} (before: {known!r}): one task in two splits, unless "
                "you give it the id it had."
            )
        if self.changed_texts:
            said.append(f"{self.changed_texts} runs have other texts under the id they had.")
        for agents, what in ((self.new_agents, "New"), (self.gone_agents, "Gone")):
            if agents:
                more = f" and {len(agents) - _SHOWN} more" if len(agents) > _SHOWN else ""
                said.append(f"{what} agents: {', '.join(agents[:_SHOWN])}{more}.")
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


def _by_split(runs: Counter[_Run], splits: Mapping[str, str]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (task, _), number in runs.items():
        found[splits.get(task, "")] += number
    return dict(sorted(found.items()))


def relabelled(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """Return the ids that runs of `before` had which have another label in `after`, or none.

    A run is the same run while its texts are; one whose texts are gone is looked for by its id.
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
    """Return the runs of `before` that `after` has neither by their texts nor by their id."""
    there, names = _bag(after), set(after["trajectory_id"])
    gone = []
    columns = (before[column] for column in ("trajectory_id", "task_id", "content"))
    for place, (name, task, content) in enumerate(zip(*columns, strict=True)):
        there[task, content] -= 1
        if there[task, content] < 0 and name not in names:
            gone.append(place)
    return before.iloc[gone]


class Delivered(Payload):
    """A version of a corpus; ``objects`` name its table of runs, as `run_table`."""

    kind = "delivered"
    # from 1; 0 for runs that no delivery brought
    number: int
    trajectories_sha256: str
    # SHA-256 of each source file
    files: Mapping[str, str] = {}
    changes: RunChanges | None = None

    @property
    def registered(self) -> dict[str, str | int]:
        """What a registration of the TEST ledger says of the version."""
        return {"trajectories_sha256": self.trajectories_sha256, "version": self.number}


class Deliveries:
    """The versions of one corpus."""

    def __init__(self, store: Store, corpus: str) -> None:
        self._store, self._corpus = store, corpus

    def read(self) -> list[Delivered]:
        """Return the versions, the oldest first."""
        return [entry.content for entry in self._store.events(self._corpus, Delivered)]

    def of(self, trajectories_sha256: str) -> Delivered:
        """Return the version that stored runs are; number 0 where no delivery brought them."""
        stored = self.read()
        if stored and stored[-1].trajectories_sha256 == trajectories_sha256:
            return stored[-1]
        return Delivered(number=0, trajectories_sha256=trajectories_sha256)

    def runs(self, delivery: Delivered) -> pd.DataFrame:
        """Return the table of the runs of a version."""
        return self._store.objects.get_table(delivery.objects["runs"])

    def known_runs(self, trajectories_sha256: str) -> pd.DataFrame | None:
        """Return the table of the runs of stored trajectories; None where no version has them."""
        same = (item for item in self.read() if item.trajectories_sha256 == trajectories_sha256)
        version = next(same, None)
        return None if version is None else self.runs(version)

    def last_runs(self) -> pd.DataFrame | None:
        """Return the table of the runs of the last version."""
        stored = self.read()
        return self.runs(stored[-1]) if stored else None

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
