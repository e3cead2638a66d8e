"""Runs of batches that come back with labels, in a delivery of the corpus."""

# A corpus takes labelled runs into RL, CAL and TEST as they are delivered. Runs of a decided batch
# may be among them: the whole of it, once its outcomes are known, or what reviewers labelled. The
# latter were chosen by the judge's decision, all but the tasks of the audit sample, so that a
# certificate on them would be of the hardest runs, or of the easiest. What shows the choice is what
# is missing: where every run of an agent in the batch comes back, nothing was chosen. An agent that
# does not come back at all was not chosen by decisions, and runs are known by their texts.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.corpus import Corpus, DeliveryCheck
from certify_assets.errors import InputError
from certify_assets.operations.audit_sample import OPEN_SHARE
from certify_assets.operations.batches import batch_names, identities_of
from certify_assets.operations.decisions import decisions_of
from certify_assets.operations.labels import read_labels, resolve_labels

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest

_CERTIFY: Final = (*CERTIFYING, "test")
_SHOWN: Final = 3


@dataclass(frozen=True)
class ReturnedRuns:
    """Runs of one agent in one batch that come back with labels, for RL, CAL or TEST."""

    batch: str
    agent: str
    runs: int  # of the agent in the batch that could come back
    returned: int  # that these splits get now
    audited: int  # of these, of tasks of the audit sample that come back whole
    reviewed: int  # of the others, with a label of a reviewer
    left_out: int  # that the corpus will not have with a label

    @property
    def selected(self) -> bool:
        """Whether runs that reviewers labelled come back without the others."""
        return self.reviewed > 0 and self.left_out > OPEN_SHARE * self.runs

    def sentence(self) -> str:
        """Say which runs come back."""
        return (
            f"{self.returned} new labelled runs of RL, CAL and TEST were decided in batch "
            f"{self.batch} ({self.agent}): {self.audited} of its audit sample, {self.reviewed} "
            f"others that reviewers labelled; {self.left_out} of its {self.runs} runs are not "
            "delivered."
        )


def returned_runs(
    corpus: Corpus, table: pd.DataFrame, manifest: SplitManifest | None
) -> list[ReturnedRuns]:
    """Find the runs of decided batches among those that a delivery labels for the first time.

    Parameters
    ----------
    corpus : Corpus
    table : DataFrame
        Runs of the corpus after the delivery, as `corpora.deliveries.run_table`.
    manifest : SplitManifest or None
        Splits after the delivery; None where there are too few tasks for splits.
    """
    splits = {} if manifest is None else dict(manifest.assignment_so_far)
    before = corpus.deliveries.last_runs()
    labelled = _labelled(table)
    fresh = labelled - (set() if before is None else _labelled(before))
    fresh = {run for run in fresh if splits.get(run[0]) in _CERTIFY}
    if not fresh:
        return []
    reviewed = resolve_labels(read_labels(corpus))
    found: list[ReturnedRuns] = []
    for batch in batch_names(corpus):
        rows = decisions_of(corpus, batch)[["trajectory_id", "task_id", "agent", "asked"]].merge(
            identities_of(corpus, batch)[["trajectory_id", "content_sha256"]], on="trajectory_id"
        )
        runs = list(zip(rows["task_id"], rows["content_sha256"], strict=True))
        rows = rows.assign(
            back=[run in labelled for run in runs],
            fresh=[run in fresh for run in runs],
            drawn=rows["asked"] == "audit_sample",
            said=rows["trajectory_id"].isin(list(reviewed)),
        )
        # labels of these tasks train alone, whoever chose the runs
        found += _by_agent(batch, rows[rows["task_id"].map(splits) != "sft"])
    return found


def _labelled(table: pd.DataFrame) -> set[tuple[str, str]]:
    rows = table[table["outcome"].notna()]
    return set(zip(rows["task_id"], rows["content"], strict=True))


def _by_agent(batch: str, rows: pd.DataFrame) -> Iterator[ReturnedRuns]:
    # whether a drawn task comes back was not the judge's choice, but which of its runs may be
    drawn = rows[rows["drawn"]].groupby("task_id")["back"]
    begun, whole = (
        rows["drawn"] & rows["task_id"].isin(tasks.index[tasks])
        for tasks in (drawn.any(), drawn.all())
    )
    rows = rows.assign(whole=whole, chosen=rows["fresh"] & rows["said"] & ~whole)
    rows = rows[~rows["drawn"] | begun]
    for agent, part in rows.groupby("agent", sort=True):
        if part["fresh"].any():
            yield ReturnedRuns(
                batch=batch,
                agent=str(agent),
                runs=len(part),
                returned=int(part["fresh"].sum()),
                audited=int((part["fresh"] & part["whole"]).sum()),
                reviewed=int(part["chosen"].sum()),
                left_out=int((~part["back"]).sum()),
            )


def refuse_selected(corpus: Corpus, found: Sequence[ReturnedRuns]) -> None:
    """Refuse a delivery of runs that reviewers labelled without the others of their batch."""
    selected = [item for item in found if item.selected]
    if selected:
        runs = sum(item.reviewed for item in selected)
        names = list(dict.fromkeys(item.batch for item in selected))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise InputError(
            f"{runs} runs of this delivery were labelled by reviewers of {corpus} "
            f"({', '.join(names[:_SHOWN])}{more}) because of what the judge decided. They would "
            "enter RL, CAL or TEST without the others of their batch. Deliver every run of the "
            "batch with its outcome, or only its audit sample; `certify ops recertify` uses the "
            "labels."
        )


def checking_delivery(
    corpus: Corpus, found: list[ReturnedRuns] | None = None
) -> DeliveryCheck | None:
    """Return the check of a delivery, which lists what it finds and refuses what is chosen.

    None for a corpus without decided batches, whose delivery need not be read twice.
    """
    if not batch_names(corpus):
        return None
    back = [] if found is None else found

    def check(table: pd.DataFrame, manifest: SplitManifest | None) -> None:
        back.extend(returned_runs(corpus, table, manifest))
        refuse_selected(corpus, back)

    return check
