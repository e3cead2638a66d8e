"""A delivery of new runs: which of them came before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError
from certify_assets.operations.layout import batch_key

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.schema import Trajectory

_COLUMNS = ("trajectory_id", "task_id", "agent", "source_sha256", "content_sha256", "changed")


@dataclass(frozen=True)
class DeliveredRun:
    """A run of a delivery."""

    trajectory: Trajectory
    content: str  # hash of task, agent, instruction and steps
    numbered: bool  # the source has no ids: this one was made of task, agent and attempt

    @property
    def id(self) -> str:
        """The trajectory_id."""
        return self.trajectory.trajectory_id

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same run under another id."""
        return self.trajectory.task_id, self.trajectory.agent, self.content


@dataclass(frozen=True)
class NewRuns:
    """The runs of a delivery that no batch holds, in the order of a corpus."""

    kept: list[DeliveredRun]
    changed_ids: set[str]  # of runs that came before under the same id with other content
    sentences: list[str] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """How many came before with other content."""
        return len(self.changed_ids)

    def table(self) -> pd.DataFrame:
        """Return the identities of the runs, for later deliveries."""
        import pandas as pd

        rows = [
            (
                run.id,
                run.trajectory.task_id,
                run.trajectory.agent,
                run.trajectory.source_sha256,
                run.content,
                run.id in self.changed_ids,
            )
            for run in self.kept
        ]
        return pd.DataFrame(rows, columns=list(_COLUMNS))


@dataclass(frozen=True)
class Identities:
    """The runs of all batches."""

    ids: dict[str, set[str]]  # for every id the hashes of its contents and of its source files
    contents: Counter[tuple[str, str, str]]  # how often a run came, by task, agent and content

    @classmethod
    def stored(
        cls, corpus: Corpus, batches: Iterable[str], runs: Sequence[DeliveredRun]
    ) -> Identities:
        """Read the runs of batches, as far as they concern the runs of a delivery."""
        ids: dict[str, set[str]] = {}
        contents: Counter[tuple[str, str, str]] = Counter()
        names = {run.id for run in runs if not run.numbered}
        tasks = {run.trajectory.task_id for run in runs}
        for batch in batches:
            key = batch_key(corpus.name, batch, "identities.parquet")
            about = corpus.store.read_json(batch_key(corpus.name, batch, "import.json"))
            if corpus.store.sha256(key) != about["identities_sha256"]:
                raise IntegrityError(
                    f"{corpus.store.locate(key)} is not what was imported, so known runs could "
                    "come again; restore it from a backup."
                )
            table = corpus.store.read_table(key)
            table = table[table["trajectory_id"].isin(names) | table["task_id"].isin(tasks)]
            for name, task, agent, source, content in zip(
                *(table[column] for column in _COLUMNS[:5]), strict=True
            ):
                ids.setdefault(name, set()).update((source, content) if source else (content,))
                contents[task, agent, content] += 1
        return cls(ids, contents)

    def new(self, runs: Sequence[DeliveredRun]) -> NewRuns:
        """Return the runs that are in no batch yet."""
        # A source without ids numbers the attempts of one delivery; a run of a later delivery gets
        # the next free number.
        left = self.contents.copy()
        known = {run.id for run in runs if not run.numbered and self._holds(run)}
        left.subtract(run.key for run in runs if run.id in known)
        again: list[str] = []
        taken = {*self.ids, *(run.id for run in runs if not run.numbered)}
        kept: list[DeliveredRun] = []
        changed: set[str] = set()
        for run in runs:
            if run.numbered:
                left[run.key] -= 1
                if left[run.key] < 0:
                    kept.append(_numbered(run, taken))
                    taken.add(kept[-1].id)
            elif run.id in self.ids:
                if run.id not in known:
                    kept.append(run)
                    changed.add(run.id)
            elif left[run.key] > 0:
                left[run.key] -= 1
                again.append(run.id)
            else:
                kept.append(run)
        kept.sort(key=lambda run: (run.trajectory.task_id, run.id))
        sentences = []
        if changed:
            sentences.append(
                f"{len(changed)} runs came before under the same trajectory_id with other content, "
                f"such as {min(changed)}: reviewers decide them; give a run that was made again an "
                "id of its own."
            )
        if again:
            sentences.append(
                f"{len(again)} runs came before under other ids, with the same task, agent and "
                f"texts, such as {min(again)}: they are not decided again."
            )
        return NewRuns(kept, changed, sentences)

    def _holds(self, run: DeliveredRun) -> bool:
        """Whether a batch has the run under its id as it is."""
        return bool(self.ids.get(run.id, set()) & {run.content, run.trajectory.source_sha256})


def _numbered(run: DeliveredRun, taken: set[str]) -> DeliveredRun:
    made, attempt = run.trajectory, run.trajectory.attempt
    while (name := f"{made.task_id}/{made.agent}/{attempt}") in taken:
        attempt += 1
    return replace(run, trajectory=replace(made, attempt=attempt, trajectory_id=name))
