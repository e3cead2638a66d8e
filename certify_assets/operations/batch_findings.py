"""Unlike the calibration table: other shares decided, larger tasks, attempts sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.certificates.shift import SHIFT_LEVEL, decided_shift
from certify_assets.operations.layout import batch_names, first_decisions_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from certify_assets.certificates import Certificate
    from certify_assets.judges.judged import JudgedCorpus

_PAIR = ["task_id", "agent"]


def unlike_calibration(
    judge: JudgedCorpus, used: Sequence[Certificate], batch: str, frame: pd.DataFrame
) -> Iterator[tuple[str, str]]:
    """Say, by code, what the decided runs of a batch have that the calibration table has not."""
    cal = judge.calibration[0]
    # runs of known tasks are the same work, not new draws of it
    rows = frame[~frame["task_id"].isin(list(judge.corpus.manifest.assignment))]
    for item in used:
        if item.certified:
            yield from _shift(cal, rows, item)
    yield from _larger_tasks(cal, rows)
    yield from _sent_again(judge, cal, batch, rows)


def _shift(cal: pd.DataFrame, rows: pd.DataFrame, item: Certificate) -> Iterator[tuple[str, str]]:
    found = decided_shift(
        *((_decided(part["score"], item), part["task_id"].tolist()) for part in (cal, rows))
    )
    if found is not None and found.p_value <= SHIFT_LEVEL:
        yield (
            "shifted",
            f"the {item.side} threshold decides {100 * found.batch:.0f} % of the runs of new tasks "
            f"and {100 * found.calibration:.0f} % of the calibration table (p "
            f"{found.p_value:.1g}): they are not like the runs that the certificate is about; have "
            "some labelled, or certify this batch by a draw (`certify ops ingest --draw`).",
        )


def _decided(scores: pd.Series[Any], item: Certificate) -> NDArray[np.bool_]:
    values, threshold = scores.to_numpy(np.float64), item.threshold
    assert threshold is not None
    return np.asarray(values <= threshold if item.side == "reject" else values >= threshold)


def _larger_tasks(cal: pd.DataFrame, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    most, sizes = int(cal["task_id"].value_counts().max()), rows["task_id"].value_counts()
    if (larger := sizes[sizes > most]).size:
        yield (
            "larger_tasks",
            f"{larger.size} tasks have more runs than the largest of the calibration table "
            f"({larger.max()} against {most}): a judge that such a task fools is wrong more often "
            "than the certificate allows for; have runs of them reviewed.",
        )


def _sent_again(
    judge: JudgedCorpus, cal: pd.DataFrame, batch: str, rows: pd.DataFrame
) -> Iterator[tuple[str, str]]:
    """Count the attempts of each agent at each task over all batches."""
    most = int(cal[_PAIR].value_counts().max())
    here = Counter(map(tuple, rows[_PAIR].to_numpy().tolist()))
    total = Counter(here)
    for earlier in batch_names(judge.corpus):
        if earlier != batch:
            pairs = map(tuple, first_decisions_of(judge.corpus, earlier)[_PAIR].to_numpy().tolist())
            total.update(pair for pair in pairs if pair in here)
    again = {pair: number for pair, number in total.items() if number > max(most, here[pair])}
    if again:
        (task, agent), number = max(again.items(), key=lambda item: (item[1], item[0]))
        yield (
            "sent_again",
            f"{len(again)} times an agent has more attempts at a task, over all batches, than any "
            f"has in the calibration table ({most}): {agent!r} has {number} at {task!r}. Who sees "
            "a decision can send a run again with other words; look at them.",
        )
