"""Unlike the calibration table: other shares decided, larger tasks, other lengths, repetitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa

from certify_assets.certificates.shift import SHIFT_LEVEL, decided_shift
from certify_assets.corpora.schema import run_chars
from certify_assets.operations.coverage import changed_agents
from certify_assets.operations.delivery import known_runs

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from certify_assets.certificates import Certificate
    from certify_assets.judges.judged import JudgedCorpus

_PAIR = ["task_id", "agent"]


def shifts(judge: JudgedCorpus, used: Sequence[Certificate], frame: pd.DataFrame) -> Iterator[str]:
    """Say of which sides the certificates decide another share of new runs than of CAL."""
    cal, rows = judge.calibration[0], _of_new_tasks(judge, frame)
    for item in used:
        if item.certified:
            yield from _shift(cal, rows, item)


def unlike_calibration(
    judge: JudgedCorpus, batch: str, frame: pd.DataFrame
) -> Iterator[tuple[str, str]]:
    """Say, by code, what the scored runs of a batch have that the calibration table has not.

    `frame` has the characters of each run as `length`.
    """
    cal, rows = judge.calibration[0], _of_new_tasks(judge, frame)
    yield from _larger_tasks(cal, rows)
    yield from _other_lengths(judge, cal, rows)
    yield from _sent_again(judge, cal, batch, rows)


def _of_new_tasks(judge: JudgedCorpus, frame: pd.DataFrame) -> pd.DataFrame:
    # runs of known tasks are the same work, not new draws of it
    return frame[~frame["task_id"].isin(list(judge.corpus.manifest.assignment))]


def _shift(cal: pd.DataFrame, rows: pd.DataFrame, item: Certificate) -> Iterator[str]:
    found = decided_shift(
        *((_decided(part["score"], item), part["task_id"].tolist()) for part in (cal, rows))
    )
    if found is not None and found.p_value <= SHIFT_LEVEL:
        yield (
            f"the {item.side} threshold decides {100 * found.batch:.0f} % of the runs of new tasks "
            f"and {100 * found.calibration:.0f} % of the calibration table (p "
            f"{found.p_value:.1g}): they are not like the runs that the certificate is about; have "
            "some labelled, or certify this batch by a draw (`certify ops ingest --draw`)."
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


def _other_lengths(
    judge: JudgedCorpus, cal: pd.DataFrame, rows: pd.DataFrame
) -> Iterator[tuple[str, str]]:
    """Compare the characters of runs, by agent, as `coverage.changed_agents` compares scores."""
    import pandas as pd

    runs = pd.concat([judge.corpus.split(split) for split in judge.calibration_splits])
    lengths = dict(zip(runs["trajectory_id"], run_chars(runs), strict=True))
    before = cal.assign(length=cal["trajectory_id"].map(lengths))
    known = rows[rows["agent"].isin(set(cal["agent"]))]
    if agents := changed_agents(before, known, "length"):
        then, now = (
            frame.loc[frame["agent"] == agents[0], "length"].median() for frame in (before, known)
        )
        yield (
            "other_lengths",
            f"agents of the calibration table ({len(agents)}) write runs of other lengths now: "
            f"{agents[0]!r} has a median of {now:.0f} characters, and had {then:.0f}. Look at "
            "some for another version, or other work.",
        )


def _sent_again(
    judge: JudgedCorpus, cal: pd.DataFrame, batch: str, rows: pd.DataFrame
) -> Iterator[tuple[str, str]]:
    """Count the attempts of each agent at each task over all batches."""
    most = int(cal[_PAIR].value_counts().max())
    here = Counter(map(tuple, rows[_PAIR].to_numpy().tolist()))
    corpus, total = judge.corpus.current, Counter(here)
    # batches that were received and not decided yet are later ones
    query = sa.select(known_runs.c.task, known_runs.c.agent, sa.func.count().label("runs")).where(
        known_runs.c.corpus == corpus.name, known_runs.c.batch < batch
    )
    earlier = query.group_by(known_runs.c.task, known_runs.c.agent)
    for row in corpus.store.indexed(earlier, known_runs.c.task, {task for task, _ in here}):
        if (row.task, row.agent) in here:
            total[row.task, row.agent] += row.runs
    again = {pair: number for pair, number in total.items() if number > max(most, here[pair])}
    if again:
        (task, agent), number = max(again.items(), key=lambda item: (item[1], item[0]))
        yield (
            "sent_again",
            f"{len(again)} times an agent has more attempts at a task, over all batches, than any "
            f"has in the calibration table ({most}): {agent!r} has {number} at {task!r}. Who sees "
            "a decision can send a run again with other words; look at them.",
        )
