"""What a harvest may see: halves of CAL, a pool without outcomes, and training rows that hold no task kept for certifying."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError, LeakError
from certify_assets.judges.selection import choosing_half

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest

__all__ = [
    "HALF_A",
    "HALVES_SEED",
    "LABEL_SOURCE",
    "Pool",
    "Splits",
    "halves",
    "refuse_held_out",
    "training_set",
    "withhold",
]

#: of the halves of CAL, the paper's
HALVES_SEED = 42
#: column of training rows that says whether a person or the certificate gave the label
LABEL_SOURCE = "label_source"
#: its value for labels of half A that were given up for training
HALF_A = "half_a"


@dataclass(frozen=True, eq=False)
class Splits:
    """The labelled trajectories of the four splits, with the manifest that keeps their tasks apart."""

    sft: pd.DataFrame
    rl: pd.DataFrame
    cal: pd.DataFrame
    test: pd.DataFrame
    manifest: SplitManifest


@dataclass(frozen=True, eq=False)
class Pool:
    """Trajectories to harvest from.

    Attributes
    ----------
    frame : pandas.DataFrame
        Without outcomes: what a judge and a harvest are given.
    withheld : int8 array, shape (rows,)
        The outcomes, to report contamination by; nothing that trains or decides reads them.
    """

    frame: pd.DataFrame
    withheld: NDArray[np.int8]


def withhold(frame: pd.DataFrame) -> Pool:
    """Take the outcomes of labelled trajectories away.

    Raises
    ------
    InputError
        If there is none: a harvest needs a pool, and its contamination needs the truth of it.
    """
    labelled = frame[frame["outcome"].notna()].reset_index(drop=True)
    if labelled.empty:
        raise InputError(
            "the pool of the harvest is empty: this corpus has no RL split; split it again with --rl."
        )
    return Pool(labelled.assign(outcome=None), labelled["outcome"].to_numpy(np.int8))


def halves(cal: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cut CAL by task: half A sets the threshold of the harvest, half B certifies what was trained on it.

    Raises
    ------
    InputError
        If CAL has fewer than two tasks.
    """
    first = choosing_half(cal["task_id"].tolist(), seed)
    return cal[first].reset_index(drop=True), cal[~first].reset_index(drop=True)


def training_set(
    source: pd.DataFrame, harvested: pd.DataFrame, *, label: int, manifest: SplitManifest
) -> pd.DataFrame:
    """Join human-labelled source rows and pseudo-labelled ones.

    Parameters
    ----------
    source : pandas.DataFrame
        Labelled by people.
    harvested : pandas.DataFrame
        Rows of the pool; their outcomes are ignored.
    label : {0, 1}
        The pseudo-label: 0 on the reject side, 1 on the release side.
    manifest : SplitManifest
        Of the target.

    Returns
    -------
    pandas.DataFrame
        With the column ``label_source``: "human" or "harvest".

    Raises
    ------
    LeakError
        If a harvested row is of a task of CAL or TEST.
    """
    import pandas as pd

    refuse_held_out(harvested, manifest, what="pseudo-labelled")
    parts = [
        source.assign(**{LABEL_SOURCE: "human"}),
        harvested.assign(**{"outcome": label, LABEL_SOURCE: "harvest"}),
    ]
    joined = pd.concat([part for part in parts if len(part)], ignore_index=True)
    joined["outcome"] = joined["outcome"].astype("int8")
    return joined


def refuse_held_out(
    frame: pd.DataFrame, manifest: SplitManifest, *, what: str, spent: Collection[str] = ()
) -> None:
    """Refuse rows whose tasks are kept for certifying or auditing.

    Parameters
    ----------
    frame : pandas.DataFrame
    manifest : SplitManifest
    what : str
        The rows in a word, for the sentence.
    spent : collection of str
        Tasks of CAL whose labels were given up for training, and which certify nothing any more.

    Raises
    ------
    LeakError
        Names the first such row.
    """
    kept = {task for task, split in manifest.assignment.items() if split in {"cal", "test"}} - set(
        spent
    )
    found = frame[frame["task_id"].isin(kept) & (frame["corpus"] == manifest.corpus)]
    if len(found):
        row = found.iloc[0]
        raise LeakError(
            f"{len(found)} {what} rows are of tasks that certify or audit, the first being {row['trajectory_id']!r} of task {row['task_id']!r} in "
            f"{manifest.assignment[row['task_id']].upper()}; train on tasks of SFT and RL alone."
        )
