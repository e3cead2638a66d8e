"""Which runs came before: told by the id that the source gives them, or where it gives none by what they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from certify_assets.errors import IntegrityError
from certify_assets.operations.layout import batch_key
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.schema import Trajectory

__all__ = ["Identities", "Run", "SortedOut"]

_COLUMNS = ("trajectory_id", "task_id", "agent", "source_sha256", "content_sha256", "changed")


@dataclass(frozen=True)
class Run:
    """A run of a delivery.

    Parameters
    ----------
    trajectory : Trajectory
    content : str
        Hash of task, agent, instruction and steps.
    numbered : bool
        Whether the source gives it no id, so that its id was made of task, agent and attempt.
    """

    trajectory: Trajectory
    content: str
    numbered: bool


@dataclass(frozen=True)
class SortedOut:
    """The runs of a delivery that go on, in the order of a corpus.

    Parameters
    ----------
    kept : list of Run
        New runs, and those that came before under the same id with other content.
    changed_ids : set of str
        Ids of the latter.
    sentences : list of str
    """

    kept: list[Run]
    changed_ids: set[str]
    sentences: list[str] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """How many came before with other content."""
        return len(self.changed_ids)

    def table(self) -> pd.DataFrame:
        """Return who the runs are, for the deliveries to come."""
        import pandas as pd

        rows = [
            (
                *_names(run),
                run.trajectory.source_sha256,
                run.content,
                run.trajectory.trajectory_id in self.changed_ids,
            )
            for run in self.kept
        ]
        return pd.DataFrame(rows, columns=list(_COLUMNS))


@dataclass(frozen=True)
class Identities:
    """The runs of all batches.

    Parameters
    ----------
    ids : dict of str to set of str
        For every id the hashes of its contents and of its source files.
    contents : Counter of (task, agent, content)
        How often a run was there.
    """

    ids: dict[str, set[str]]
    contents: Counter[tuple[str, str, str]]

    @classmethod
    def stored(
        cls, store: Store, corpus: str, batches: Iterable[str], runs: Sequence[Run]
    ) -> Identities:
        """Read who was in batches, of all that was there what has to do with the runs of a delivery."""
        ids: dict[str, set[str]] = {}
        contents: Counter[tuple[str, str, str]] = Counter()
        names = {run.trajectory.trajectory_id for run in runs if not run.numbered}
        tasks = {run.trajectory.task_id for run in runs if run.numbered}
        for batch in batches:
            key = batch_key(corpus, batch, "identities.parquet")
            if (
                store.sha256(key)
                != store.read_json(batch_key(corpus, batch, "import.json"))["identities_sha256"]
            ):
                raise IntegrityError(
                    f"{store.locate(key)} is not what was imported, so known runs could come again; restore it from a backup."
                )
            table = store.read_table(key)
            table = table[table["trajectory_id"].isin(names) | table["task_id"].isin(tasks)]
            for name, task, agent, source, content in zip(
                *(table[column] for column in _COLUMNS[:5]), strict=True
            ):
                ids.setdefault(name, set()).update((source, content) if source else (content,))
                contents[task, agent, content] += 1
        return cls(ids, contents)

    def sort_out(self, runs: Sequence[Run]) -> SortedOut:
        """Leave out the runs that are in a batch already.

        Notes
        -----
        A source without ids numbers the attempts of what is delivered together; a run of a later delivery gets the next free number.
        """
        left = self.contents.copy()
        taken = {*self.ids, *(run.trajectory.trajectory_id for run in runs if not run.numbered)}
        kept, changed = [], set()
        for run in runs:
            name = run.trajectory.trajectory_id
            if run.numbered:
                key = (run.trajectory.task_id, run.trajectory.agent, run.content)
                left[key] -= 1
                if left[key] < 0:
                    kept.append(_numbered(run, taken))
                    taken.add(kept[-1].trajectory.trajectory_id)
            elif not self.ids.get(name, set()) & {run.content, run.trajectory.source_sha256}:
                kept.append(run)
                changed |= {name} & set(self.ids)
        kept.sort(key=lambda run: (run.trajectory.task_id, run.trajectory.trajectory_id))
        sentences = []
        if changed:
            sentences.append(
                f"{len(changed)} runs came before under the same trajectory_id with other content, such as {min(changed)}: people decide them; "
                "give a run that was made again an id of its own."
            )
        return SortedOut(kept, changed, sentences)


def _numbered(run: Run, taken: set[str]) -> Run:
    made = run.trajectory
    attempt = made.attempt
    while f"{made.task_id}/{made.agent}/{attempt}" in taken:
        attempt += 1
    return replace(
        run,
        trajectory=replace(
            made, attempt=attempt, trajectory_id=f"{made.task_id}/{made.agent}/{attempt}"
        ),
    )


def _names(run: Run) -> tuple[str, str, str]:
    return run.trajectory.trajectory_id, run.trajectory.task_id, run.trajectory.agent
