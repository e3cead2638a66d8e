"""The audit sample: which of the tasks that people labelled may extend CAL, and why the others may not.

A task counts when it was drawn "audit" before anything was scored and every attempt of it, over all batches, has an outcome that its reviewers agree on
or that a majority of them gives. The draw is recomputed here from the plans that were deployed: a row that says otherwise is of mixed provenance, and
nothing counts until that is cleared up.

What the draw cannot give is said, not corrected: tasks that are still open or tied are left out, so whether a task gets complete must not depend on its
outcomes. Their share is a figure of every recertification, and so is the error in the worst case, all of their decided runs wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import parse_json
from certify_assets.protocol.corpus_steps import open_corpus
from certify_assets.protocol.operations.journal import Label, read_labels, resolve_labels
from certify_assets.protocol.operations.layout import batch_key, deployment_key, deployments_key, load_decisions
from certify_assets.protocol.operations.sampling import SamplingPlan, draw_tasks
from certify_assets.protocol.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "OPEN_SHARE",
    "REASONS",
    "CountedTasks",
    "completed_at",
    "count_audit_tasks",
    "deployed_plans",
    "drawn_decisions",
    "with_labels",
]

#: share of drawn tasks that are open or tied above which a certificate on the others is met with a warning
OPEN_SHARE = 0.1
#: why a drawn task does not count
REASONS = {
    "open": "not every attempt is labelled",
    "tied": "reviewers of an attempt disagree and neither side has a majority",
    "in_splits": "the task is in the splits of the corpus",
    "other_adapter": "an attempt was scored by another adapter than the present one, or not at all",
    "drawn_otherwise": "another batch drew the task under another plan, so its attempts there are not all labelled",
}
_AUTOMATIC = ("reject", "release")


@dataclass(frozen=True, eq=False)
class CountedTasks:
    """The tasks that count and those that do not.

    Parameters
    ----------
    rows : pandas.DataFrame
        trajectory_id, task_id, agent, batch, score, outcome: every row of every task that counts, tasks in the order in which they were complete,
        rows within one as they were decided.
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


def deployed_plans(store: Store, corpus: str) -> list[SamplingPlan]:
    """Return the sampling plans that were ever deployed, the newest first."""
    lines = store.read_bytes(deployments_key(corpus)).splitlines() if store.exists(deployments_key(corpus)) else []
    documents = [parse_json(line.decode("utf-8")) for line in lines]
    if store.exists(deployment_key(corpus)):
        documents.append(store.read_json(deployment_key(corpus)))
    return list(dict.fromkeys(SamplingPlan(**document["sampling"]) for document in reversed(documents)))


def drawn_decisions(store: Store, corpus: str) -> pd.DataFrame:
    """Return the decisions of all batches with a column ``drawn`` ("audit", "spot" or ""), recomputed from the plans that were deployed.

    Batches from before the first deployment, in which nothing was decided and nobody drawn, are left out.

    Raises
    ------
    InputError
        If a run was decided in two batches, or what a row says of itself is not what any deployed plan draws: such a row may have been asked for
        because of its score or of its outcome.
    """
    frame = load_decisions(store, corpus)
    frame = frame[frame["reason"] != "not_deployed"].reset_index(drop=True)
    if (twice := frame["trajectory_id"].duplicated()).any():
        name = frame.loc[twice, "trajectory_id"].iloc[0]
        raise InputError(f"{corpus}: the run {name!r} was decided in two batches; take it out of the later one.")
    plans = deployed_plans(store, corpus)
    parts = [_drawn(store, corpus, str(batch), part, plans) for batch, part in frame.groupby("batch", sort=False)]
    column = np.concatenate(parts) if parts else np.empty(0, dtype="<U5")
    return frame.assign(drawn=column)


def _drawn(store: Store, corpus: str, batch: str, rows: pd.DataFrame, plans: Sequence[SamplingPlan]) -> np.ndarray[Any, Any]:
    """Return what the batch's plan draws of its rows: the newest deployed one that agrees with every row."""
    first: str | None = None
    for plan in plans:
        drawn = draw_tasks(plan, corpus, rows["task_id"])
        wrong = np.flatnonzero(_asked(drawn, rows["decision"].to_numpy(object)) != rows["asked"].to_numpy(object))
        if not wrong.size:
            return drawn
        row = rows.iloc[int(wrong[0])]
        first = first or f"row {int(wrong[0]) + 1}, run {row['trajectory_id']!r} is asked for as {row['asked'] or 'nothing'!r}"
    why = first or "no plan of a draw was ever deployed"
    raise InputError(
        f"{store.locate(batch_key(corpus, batch, 'decisions.parquet'))}, column 'asked': {why}, which is not what the deployed plan draws; "
        "the provenance of its labels is mixed, so restore the file as it was written, or take the batch out."
    )


def _asked(drawn: np.ndarray[Any, Any], decisions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    asked = np.where(decisions == "human", "undecided", "").astype(object)
    asked[(drawn == "spot") & np.isin(decisions, _AUTOMATIC)] = "spot_check"
    asked[drawn == "audit"] = "audit_sample"
    return asked


def with_labels(frame: pd.DataFrame, labels: Iterable[Label]) -> pd.DataFrame:
    """Return decisions with the columns ``outcome`` (missing where there is none) and ``tied``, as the journal stands."""
    resolved = resolve_labels(labels)
    found = [resolved.get(str(name)) for name in frame["trajectory_id"]]
    outcome = np.array([np.nan if item is None or item.outcome is None else item.outcome for item in found], dtype=np.float64)
    return frame.assign(outcome=outcome, tied=[item is not None and item.outcome is None for item in found])


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
    store: Store, corpus: str, *, adapter_sha256: str, before: Mapping[str, frozenset[str]] | None = None
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
    frame = drawn_decisions(store, corpus)
    labels = read_labels(store, corpus)
    before = before or {}
    audit = with_labels(frame[frame["task_id"].isin(set(frame.loc[frame["drawn"] == "audit", "task_id"]))], labels)
    audit, came_again = _as_counted(audit, before, corpus)
    reasons = _reasons(audit, set(open_corpus(store, corpus)[1].assignment), adapter_sha256)
    runs = {str(task): [str(name) for name in part] for task, part in audit.groupby("task_id", sort=False)["trajectory_id"]}
    order = completed_at(labels, {task: names for task, names in runs.items() if not reasons[task]})
    places = audit["task_id"].map(order)
    rows = audit[places.notna()].iloc[np.argsort(places[places.notna()].to_numpy(), kind="stable")]
    waiting = audit[audit["task_id"].map(reasons).isin(["open", "tied"])]
    counts = {name: sum(reason == name for reason in reasons.values()) for name in REASONS}
    names = ["trajectory_id", "task_id", "agent", "batch", "score"]
    return CountedTasks(
        rows=rows[[*names, "outcome"]].astype({"outcome": "int8"}).reset_index(drop=True),
        drawn=len(reasons),
        left_out={name: number for name, number in counts.items() if number},
        unresolved=waiting[names].reset_index(drop=True),
        came_again=came_again,
    )


def _as_counted(audit: pd.DataFrame, before: Mapping[str, frozenset[str]], corpus: str) -> tuple[pd.DataFrame, int]:
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
            "drawn_otherwise": bool((part["drawn"] != "audit").any()),
            "other_adapter": bool((part["adapter_sha256"] != adapter_sha256).any()),
            "open": bool((missing & ~tied).any()),
            "tied": bool(tied.any()),
        }
        found[str(task)] = next((name for name, holds in tests.items() if holds), "")
    return found
