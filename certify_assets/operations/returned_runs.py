"""Runs of batches that come back with labels, in a delivery of the corpus."""

# A corpus takes labelled runs into RL, CAL and TEST as they are delivered. Runs of a decided batch
# may be among them: the whole of it, once its outcomes are known, or what reviewers labelled. The
# latter were chosen by the judge's decision, all but the tasks of the audit sample, so that a
# certificate on them would be of the hardest runs, or of the easiest. What shows the choice is what
# is missing: where every run of an agent in the batch comes back, nothing was chosen. An agent that
# does not come back at all was not chosen by decisions, and runs are known by their texts.

from __future__ import annotations

from collections.abc import Collection
from functools import partial
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


def checking_delivery(corpus: Corpus) -> DeliveryCheck | None:
    """Return the check of a delivery, which refuses what reviewers' labels chose.

    None for a corpus without decided batches, whose delivery need not be read twice.
    """
    return partial(_refuse_chosen, corpus) if batch_names(corpus) else None


def _refuse_chosen(corpus: Corpus, table: pd.DataFrame, manifest: SplitManifest | None) -> None:
    splits = {} if manifest is None else dict(manifest.assignment_so_far)
    before = corpus.deliveries.last_runs()
    labelled = _labelled(table)
    fresh = {
        run
        for run in labelled - (set() if before is None else _labelled(before))
        if splits.get(run[0]) in _CERTIFY
    }
    found: dict[str, int] = {}
    for batch in batch_names(corpus) if fresh else ():
        rows = decisions_of(corpus, batch)[["trajectory_id", "task_id", "agent", "asked"]].merge(
            identities_of(corpus, batch)[["trajectory_id", "content_sha256"]], on="trajectory_id"
        )
        runs = list(zip(rows["task_id"], rows["content_sha256"], strict=True))
        rows = rows.assign(
            missing=[run not in labelled for run in runs], fresh=[run in fresh for run in runs]
        )
        # labels of these tasks train alone, whoever chose the runs
        rows = rows[rows["task_id"].map(splits) != "sft"]
        if chosen := _chosen(rows, resolve_labels(read_labels(corpus))):
            found[batch] = chosen
    if found:
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        raise InputError(
            f"{sum(found.values()):,} runs of this delivery were labelled by reviewers of {corpus} "
            f"({', '.join([*found][:_SHOWN])}{more}) because of the judge's decisions. They would "
            "enter RL, CAL or TEST without the others of their batch. Deliver every run of the "
            "batch with its outcome, or only its audit sample. `certify ops recertify` uses the "
            "labels without a delivery."
        )


def _labelled(table: pd.DataFrame) -> set[tuple[str, str]]:
    rows = table[table["outcome"].notna()]
    return set(zip(rows["task_id"], rows["content"], strict=True))


def _chosen(rows: pd.DataFrame, reviewed: Collection[str]) -> int:
    """Count the reviewed runs of a batch that come back without the others of their agent."""
    # whether a drawn task comes back was not the judge's choice, but which of its runs may be
    drawn = rows["asked"] == "audit_sample"
    missing = rows[drawn].groupby("task_id")["missing"]
    gone, partly = (
        drawn & rows["task_id"].isin(tasks.index[tasks]) for tasks in (missing.all(), missing.any())
    )
    said = rows["trajectory_id"].isin(list(reviewed)) & rows["fresh"] & (~drawn | partly)
    agents = rows.assign(said=said)[~gone].groupby("agent")
    counts = agents["said"].sum()
    return int(counts[agents["missing"].mean() > OPEN_SHARE].sum())
