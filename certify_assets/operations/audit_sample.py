"""The audit sample: which of the tasks that people labelled may extend CAL, and why the others may not.

A task counts when it was drawn "audit" before anything was scored and every attempt of it, over all batches, has an outcome that its reviewers agree on
or that a majority of them gives. The draw is recomputed here from the plans that were deployed: a row that says otherwise is of mixed provenance, and
nothing counts until that is cleared up.

What the draw cannot give is said, not corrected: tasks that are still open or tied are left out, so whether a task gets complete must not depend on its
outcomes. Their share is a figure of every recertification, and so is the error in the worst case, all of their decided runs wrong: a few open tasks
are enough to hide half of the errors where reviewers put off what went badly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.operations.journal import Label, read_labels, resolve_labels
from certify_assets.operations.layout import batch_key, batch_names, decisions_of, load_decisions
from certify_assets.operations.sampling import SamplingPlan, draw_tasks
from certify_assets.operations.standing import REFUSALS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "OPEN_SHARE",
    "REASONS",
    "CountedTasks",
    "completed_at",
    "count_audit_tasks",
    "drawn_decisions",
    "with_labels",
]

#: share of drawn tasks that are open or tied above which a certificate on the others is met with a warning, whatever the worst case
OPEN_SHARE = 0.05
#: why a drawn task does not count
REASONS = {
    "open": "not every attempt is labelled",
    "tied": "reviewers of an attempt disagree and neither side has a majority",
    "in_splits": "the task is in the splits of the corpus",
    "changed_run": "a run came twice under one name with different content, so it is not known which of them was labelled",
    "drawn_otherwise": "another batch did not draw the task, so its attempts there are not all labelled",
    "other_adapter": "an attempt was scored by another adapter than the present one",
}
_AUTOMATIC = ("reject", "release")
_MIXED = "; the provenance of its labels is mixed, so restore the batch as it was written, or take it out."


@dataclass(frozen=True, eq=False)
class CountedTasks:
    """The tasks that count and those that do not.

    Parameters
    ----------
    rows : pandas.DataFrame
        trajectory_id, task_id, agent, batch, score, outcome, refused: every row of every task that counts, tasks in the order in which they were
        complete, rows within one as they were decided. Those of a batch that was refused (`refused`) were never scored.
    drawn : int
        Tasks that were drawn.
    left_out : mapping of str to int
        Drawn tasks that do not count, by the keys of ``REASONS``.
    unresolved : pandas.DataFrame
        The rows, scores alone, of the tasks that are open or tied.
    came_again : int
        Tasks counted by an earlier recertification that got attempts afterwards: those attempts stay out.
    """

    rows: pd.DataFrame
    drawn: int
    left_out: Mapping[str, int]
    unresolved: pd.DataFrame
    came_again: int

    @property
    def tasks(self) -> list[str]:
        """The tasks that count, in the order in which they were complete."""
        return [str(task) for task in self.rows["task_id"].drop_duplicates()]

    @property
    def open_share(self) -> float:
        """Share of the tasks that could count which are open or tied."""
        waiting = self.left_out.get("open", 0) + self.left_out.get("tied", 0)
        able = waiting + len(self.tasks)
        return waiting / able if able else 0.0


def drawn_decisions(corpus: Corpus) -> pd.DataFrame:
    """Return the decisions of all batches with a column ``drawn`` ("audit", "spot" or ""), recomputed from the plans that were deployed.

    Raises
    ------
    InputError
        If a batch was drawn under a plan that was never deployed, or a row says that it is asked about for another reason than the draw gives: it may
        have been picked because of its score or of its outcome.
    """
    import pandas as pd

    seen = frozenset(corpus.assignment)
    parts = [_drawn(corpus, name, seen) for name in batch_names(corpus)]
    return pd.concat(parts, ignore_index=True) if parts else load_decisions(corpus).assign(drawn="")


def _drawn(corpus: Corpus, batch: str, in_splits: frozenset[str]) -> pd.DataFrame:
    rows, draw = (
        decisions_of(corpus, batch),
        corpus.store.read_json(batch_key(corpus.name, batch, "draw.json")),
    )
    where = corpus.store.locate(batch_key(corpus.name, batch, "decisions.parquet"))
    about = corpus.store.read_json(batch_key(corpus.name, batch, "batch.json"))
    if (about.get("corpus", corpus.name), about.get("batch", batch)) != (corpus.name, batch):
        raise InputError(
            f"{where}: its batch.json is of {about.get('corpus')}, {about.get('batch')}{_MIXED}"
        )
    for name, file in (
        ("decisions_sha256", "decisions.parquet"),
        ("draw_sha256", "draw.json"),
        ("identities_sha256", "identities.parquet"),
    ):
        # a batch of these has both hashes; where the third is told, it holds too
        if (name in about or file != "identities.parquet") and corpus.store.sha256(
            batch_key(corpus.name, batch, file)
        ) != about.get(name):
            raise InputError(
                f"{where}: {file} is not what was written when the batch was decided{_MIXED}"
            )
    if draw["deployment"] is None:
        drawn = np.full(len(rows), "", dtype="<U5")
    else:
        known = {item.number: item.sampling for item in read_deployments(corpus)}
        plan = SamplingPlan(**draw["plan"])
        if known.get(draw["deployment"]) != plan:
            raise InputError(
                f"{where}: its tasks were drawn under a plan that was never deployed{_MIXED}"
            )
        drawn = draw_tasks(plan, corpus.name, rows["task_id"])
    said = rows["asked"].to_numpy(object)
    wrong = np.flatnonzero(_asked(drawn, rows, _aside(corpus, batch, rows, in_splits)) != said)
    if wrong.size:
        row = rows.iloc[int(wrong[0])]
        shown = f"row {int(wrong[0]) + 1}, run {row['trajectory_id']!r} is asked about as {row['asked'] or 'nothing'!r}"
        raise InputError(
            f"{where}, column 'asked': {shown}, which is not what the plan draws{_MIXED}"
        )
    return rows.assign(drawn=drawn)


def _aside(
    corpus: Corpus, batch: str, rows: pd.DataFrame, in_splits: frozenset[str]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows no draw is made of: runs that came before with other content, and tasks of the splits."""
    key = batch_key(corpus.name, batch, "identities.parquet")
    changed: set[str] = set()
    if corpus.store.exists(key):
        identities = corpus.store.read_table(key)
        changed = set(identities.loc[identities["changed"].astype(bool), "trajectory_id"])
    seen = (rows["reason"] == "seen_task") & rows["task_id"].isin(in_splits)
    aside: np.ndarray[Any, np.dtype[np.bool_]] = (
        seen | rows["trajectory_id"].isin(changed)
    ).to_numpy(bool)
    return aside


def _asked(
    drawn: np.ndarray[Any, Any], rows: pd.DataFrame, aside: np.ndarray[Any, np.dtype[np.bool_]]
) -> np.ndarray[Any, Any]:
    decisions = rows["decision"].to_numpy(object)
    asked = np.where(decisions == "human", "undecided", "").astype(object)
    asked[(drawn == "spot") & np.isin(decisions, _AUTOMATIC)] = "spot_check"
    asked[(drawn == "audit") & ~aside] = "audit_sample"
    return asked


def with_labels(frame: pd.DataFrame, labels: Iterable[Label]) -> pd.DataFrame:
    """Return decisions with the columns ``outcome`` (missing where there is none) and ``tied``, as the journal stands."""
    resolved = resolve_labels(labels)
    found = [resolved.get(str(name)) for name in frame["trajectory_id"]]
    outcome = np.array(
        [np.nan if item is None or item.outcome is None else item.outcome for item in found],
        dtype=np.float64,
    )
    return frame.assign(
        outcome=outcome, tied=[item is not None and item.outcome is None for item in found]
    )


def completed_at(labels: Iterable[Label], runs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return of each task the number of the journal's line with which every one of its runs had an outcome for the first time.

    Parameters
    ----------
    labels : iterable of Label
        The journal, the oldest first.
    runs : mapping of str to sequence of str
        The runs that matter of each task. A task without any is complete from the start, at 0.

    Notes
    -----
    Lines are numbered as they were written, whatever the clock said, and a line once written stays: the order of tasks never changes.
    """
    owner = {run: task for task, names in runs.items() for run in names}
    waiting = {task: set(names) for task, names in runs.items()}
    votes: dict[str, dict[str, int]] = {}
    found = {task: 0 for task, names in waiting.items() if not names}
    for label in labels:
        task = owner.get(label.trajectory_id)
        if task is None or task in found:
            continue
        of_run = votes.setdefault(label.trajectory_id, {})
        of_run.pop(label.reviewer, None)
        if label.outcome is not None:
            of_run[label.reviewer] = label.outcome
        # as many successes as failures are no outcome, and neither is nothing
        settled = 2 * sum(of_run.values()) != len(of_run)
        (waiting[task].discard if settled else waiting[task].add)(label.trajectory_id)
        if not waiting[task]:
            found[task] = label.number
    return found


def count_audit_tasks(
    corpus: Corpus, *, adapter_sha256: str, before: Mapping[str, frozenset[str]] | None = None
) -> CountedTasks:
    """Find the tasks that extend CAL.

    Parameters
    ----------
    store : Store
    corpus : str
    adapter_sha256 : str
        Of the judge to certify: rows that another scored do not count.
    before : mapping of str to frozenset of str, optional
        Runs of the tasks that earlier recertifications counted; of these tasks nothing else counts.

    Raises
    ------
    InputError
        As `drawn_decisions`.
    IntegrityError
        If a run that was counted before is no longer among the decisions.
    """
    frame = drawn_decisions(corpus)
    labels = read_labels(corpus)
    before = before or {}
    frame["twice"] = frame["trajectory_id"].duplicated(keep=False)
    audit = with_labels(
        frame[frame["task_id"].isin(set(frame.loc[frame["drawn"] == "audit", "task_id"]))], labels
    )
    audit, came_again = _as_counted(audit, before, corpus.name)
    reasons = _reasons(audit, set(corpus.assignment), adapter_sha256)
    runs = {
        str(task): [str(name) for name in part]
        for task, part in audit.groupby("task_id", sort=False)["trajectory_id"]
    }
    order = completed_at(labels, {task: names for task, names in runs.items() if not reasons[task]})
    places = audit["task_id"].map(order)
    rows = audit[places.notna()].iloc[np.argsort(places[places.notna()].to_numpy(), kind="stable")]
    waiting = audit[audit["task_id"].map(reasons).isin(["open", "tied"])]
    counts = {name: sum(reason == name for reason in reasons.values()) for name in REASONS}
    names = ["trajectory_id", "task_id", "agent", "batch", "score"]
    rows = rows.assign(refused=rows["reason"].isin(REFUSALS))
    return CountedTasks(
        rows=rows[[*names, "outcome", "refused"]]
        .astype({"outcome": "int8"})
        .reset_index(drop=True),
        drawn=len(reasons),
        left_out={name: number for name, number in counts.items() if number},
        unresolved=waiting[names].reset_index(drop=True),
        came_again=came_again,
    )


def _as_counted(
    audit: pd.DataFrame, before: Mapping[str, frozenset[str]], corpus: str
) -> tuple[pd.DataFrame, int]:
    """Keep of tasks that were counted before the runs that were, and no later ones; return the number of tasks that had some."""
    known = {run for names in before.values() for run in names}
    if missing := sorted(known - set(audit["trajectory_id"])):
        raise IntegrityError(
            f"{corpus}: the run {missing[0]!r} was counted by an earlier recertification and is no longer among the decisions; restore its batch."
        )
    later = audit["task_id"].isin(set(before)) & ~audit["trajectory_id"].isin(known)
    return audit[~later], int(audit.loc[later, "task_id"].nunique())


def _reasons(audit: pd.DataFrame, in_splits: set[str], adapter_sha256: str) -> dict[str, str]:
    """Return why each drawn task does not count; "" where it does."""
    found = {}
    for task, part in audit.groupby("task_id", sort=False):
        missing, tied = part["outcome"].isna(), part["tied"].astype(bool)
        tests = {
            "in_splits": task in in_splits,
            "changed_run": bool(
                (
                    part["twice"] | ((part["drawn"] == "audit") & (part["asked"] != "audit_sample"))
                ).any()
            ),
            "drawn_otherwise": bool((part["drawn"] != "audit").any()),
            "other_adapter": bool(
                ((part["adapter_sha256"] != adapter_sha256) & ~part["reason"].isin(REFUSALS)).any()
            ),
            "open": bool((missing & ~tied).any()),
            "tied": bool(tied.any()),
        }
        found[str(task)] = next((name for name, holds in tests.items() if holds), "")
    return found
