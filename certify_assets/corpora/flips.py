"""How often the same task, tried again, ends differently, and what labels that contradict each other leave to any judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.corpora.rendering import Outline, Rendered

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FlipRates", "TextLengths", "flip_rates", "text_lengths"]


@dataclass(frozen=True, slots=True)
class FlipRates:
    """Flips: attempts at one task that do not all end alike.

    Parameters
    ----------
    cells, flipped_cells : int
        Pairs of task and agent with at least two labelled attempts, and those with both outcomes.
    cell_rate : float or None
        Their share; None where no pair has two attempts.
    tasks, flipped_tasks : int
        The same of tasks, over all agents.
    task_rate : float or None
        Their share.
    unread_ceiling : float or None
        Accuracy that no judge exceeds that knows task and agent but does not read the run: Σ max(k, m − k) / Σ m over the cells, with
        k successes in m attempts. How far a judge gets beyond it is what reading gives.
    contradicted : int
        Labelled trajectories whose text equals that of one with the other outcome.
    label_ceiling : float or None
        Accuracy that no judge exceeds that gives equal texts equal verdicts: 1 − Σ min(k, m − k) / n over groups of equal text.

    Notes
    -----
    A flip is no label error: an agent may succeed once and fail once. Contradicted texts are what a judge of the text cannot tell apart,
    be it that labels are wrong or that the text leaves out what decided.
    """

    cells: int
    flipped_cells: int
    cell_rate: float | None
    tasks: int
    flipped_tasks: int
    task_rate: float | None
    unread_ceiling: float | None
    contradicted: int
    label_ceiling: float | None


@dataclass(frozen=True, slots=True)
class TextLengths:
    """Lengths of renderings in characters before any cut, and how many were cut to the budget.

    Parameters
    ----------
    shortest, median, p95, longest : int
        Characters.
    cut : int
        Trajectories that lost some.
    cut_share : float
        Share of all characters that was lost.
    """

    shortest: int
    median: int
    p95: int
    longest: int
    cut: int
    cut_share: float


def flip_rates(frame: pd.DataFrame, rendered: Sequence[Rendered | Outline]) -> FlipRates:
    """Count flips among labelled trajectories.

    Parameters
    ----------
    frame : pandas.DataFrame
        Trajectories.
    rendered : sequence of Rendered
        Of its rows; empty leaves contradicted texts out.
    """
    labelled = frame["outcome"].notna().to_numpy()
    rows = frame.loc[labelled, ["task_id", "agent"]].assign(
        outcome=frame.loc[labelled, "outcome"].astype("int64")
    )
    cells, flipped_cells, lost, attempts = _flipped(rows, ["task_id", "agent"])
    tasks, flipped_tasks, _, _ = _flipped(rows, ["task_id"])
    contradicted, label_ceiling = 0, None
    if rendered and len(rows):
        digests = [item.digest for item, kept in zip(rendered, labelled, strict=True) if kept]
        grouped = rows.assign(text=digests).groupby("text")["outcome"].agg(["size", "sum"])
        wrong = np.minimum(grouped["sum"], grouped["size"] - grouped["sum"])
        contradicted = int(grouped["size"][wrong > 0].sum())
        label_ceiling = 1.0 - int(wrong.sum()) / len(rows)
    return FlipRates(
        cells=cells,
        flipped_cells=flipped_cells,
        cell_rate=flipped_cells / cells if cells else None,
        tasks=tasks,
        flipped_tasks=flipped_tasks,
        task_rate=flipped_tasks / tasks if tasks else None,
        unread_ceiling=1.0 - lost / attempts if attempts else None,
        contradicted=contradicted,
        label_ceiling=label_ceiling,
    )


def text_lengths(rendered: Sequence[Rendered | Outline]) -> TextLengths | None:
    """Summarise the lengths of renderings; None where there are none."""
    if not rendered:
        return None
    lengths = np.array([item.length for item in rendered], dtype=np.int64)
    lost = np.array([item.cut_chars for item in rendered], dtype=np.int64)
    # a quantile that is one of the lengths, so that the figure exists
    median, p95 = (int(value) for value in np.quantile(lengths, [0.5, 0.95], method="lower"))
    return TextLengths(
        int(lengths.min()),
        median,
        p95,
        int(lengths.max()),
        int(np.count_nonzero(lost)),
        float(lost.sum() / max(1, lengths.sum())),
    )


def _flipped(rows: pd.DataFrame, by: list[str]) -> tuple[int, int, int, int]:
    """Return groups of two and more, those with both outcomes, attempts against the majority in them, and their attempts."""
    if rows.empty:
        return 0, 0, 0, 0
    grouped = rows.groupby(by)["outcome"].agg(["size", "sum"])
    several = grouped[grouped["size"] > 1]
    minority = np.minimum(several["sum"], several["size"] - several["sum"])
    return len(several), int((minority > 0).sum()), int(minority.sum()), int(several["size"].sum())
