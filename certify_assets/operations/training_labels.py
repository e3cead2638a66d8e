"""Labels that may train: those of runs that went to people because the judge could not decide them.

They are of the runs that were hardest to judge, so they neither certify nor feed the monitor, and the table says so in its column ``provenance``, which
every reader of labels refuses. The other way round, labels of drawn tasks certify and monitor and therefore never train.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit_sample import drawn_decisions, with_labels
from certify_assets.operations.journal import read_labels

__all__ = ["NOT_TRAINING", "TrainingLabels", "training_key", "write_training_labels"]

#: why a labelled run does not train
NOT_TRAINING: Final = {
    "audit_sample": "its task is drawn for the audit sample, which certifies",
    "spot_check": "its task is drawn for spot checks, which feed the monitor",
    "in_splits": "its task is in the RL, CAL or TEST split",
    "tied": "its reviewers disagree and neither side has a majority",
}
_COLUMNS = ["trajectory_id", "task_id", "agent", "batch", "score", "outcome", "provenance"]


@dataclass(frozen=True)
class TrainingLabels:
    """What the table holds.

    Parameters
    ----------
    key : str
        Where it is stored.
    sha256 : str
    rows, tasks, successes : int
    left_out : mapping of str to int
        Labelled runs that are not in it, by the keys of ``NOT_TRAINING``.
    """

    key: str
    sha256: str
    rows: int
    tasks: int
    successes: int
    left_out: Mapping[str, int]


def training_key(corpus: str) -> str:
    """Return where the labels that may train are stored."""
    return f"operations/{corpus}/training_labels.parquet"


def write_training_labels(corpus: Corpus) -> TrainingLabels:
    """Write the table of labels that may train.

    Raises
    ------
    InputError
        If rows are of mixed provenance.
    """
    frame = with_labels(drawn_decisions(corpus), read_labels(corpus))
    frame = frame[frame["outcome"].notna() | frame["tied"].astype(bool)]
    assignment = corpus.assignment
    # a task of the SFT split trains already
    held = frame["task_id"].map(lambda task: assignment.get(task, "sft") != "sft").astype(bool)
    tests = {
        "audit_sample": frame["drawn"] == "audit",
        "spot_check": frame["drawn"] == "spot",
        "in_splits": held,
        "tied": frame["tied"].astype(bool),
    }
    left_out: dict[str, int] = {}
    kept = frame
    for name, holds in tests.items():
        out = holds.loc[kept.index]
        left_out |= {name: int(out.sum())} if out.any() else {}
        kept = kept[~out]
    table = (
        kept.assign(provenance="undecided")[_COLUMNS]
        .astype({"outcome": "int8"})
        .reset_index(drop=True)
    )
    sha256 = corpus.store.write_table(training_key(corpus.name), table)
    return TrainingLabels(
        training_key(corpus.name),
        sha256,
        len(table),
        int(table["task_id"].nunique()),
        int(table["outcome"].sum()),
        left_out,
    )
