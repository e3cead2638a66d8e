"""The calibration table: validated, sorted once, and named by a hash of its content."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nsmallest
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, with_config
from typing_extensions import TypedDict  # pydantic reads those of `typing` from 3.12 on

from certify_assets.arrays import Booleans, Floats, Integers, Names
from certify_assets.certificates import kernels
from certify_assets.certificates.auroc import auroc
from certify_assets.certificates.clustering import ClusterSummary, summarise_clusters
from certify_assets.documents import CLOSED, Count, Positive, Real, Sha256
from certify_assets.errors import InputError
from certify_assets.files import name_digest, significant
from certify_assets.names import folded_names, folding, in_both, shared_names
from certify_assets.work import WorkStage, under_way

#: outcomes of drawn runs that no reviewer read, and that a reviewer could not settle
UNLABELLED, UNCLEAR = -1, -2
#: of the quantiles of scores that a certificate keeps
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
#: of the digests of tasks that a certificate keeps
MOST_DIGESTS = 4096


@with_config(CLOSED)
class SampleInputs(TypedDict):
    """The draw of runs to label as a certificate records it: enough to draw them again."""

    count: Positive
    attempts: Positive
    estimand: Literal["tasks", "runs"]
    most: Positive
    seed: Count
    # of the table that was drawn from
    sha256: Sha256


@with_config(CLOSED)
class PoolInputs(TypedDict):
    """A pool of unlabelled tasks as a certificate records it."""

    sha256: Sha256
    rows: Count
    # who chose its tasks: whoever gave them, or the rule of the platform
    origin: Annotated[str, Field(pattern="^(given|every_task)$")]


@with_config(CLOSED)
class ScoreRange(TypedDict):
    """The least and largest of some scores, and their quantiles at `LEVELS`."""

    low: Real
    high: Real
    quantiles: Annotated[list[Real], Field(min_length=len(LEVELS), max_length=len(LEVELS))]


@with_config(CLOSED)
class TableInputs(TypedDict):
    """A table as a certificate records it."""

    sha256: Sha256
    rows: Count
    # digests of its tasks in their order, at most `MOST_DIGESTS`
    tasks: Annotated[str, Field(pattern="^[0-9a-f]{12}( [0-9a-f]{12})*$")]


@with_config(CLOSED)
class Inputs(TableInputs, total=False):
    """The data that a certificate was issued on; without `scores` where no row has one."""

    pool: PoolInputs
    sample: SampleInputs
    # drawn runs that had a label, unclear ones too; only with `sample`
    labels: Count
    scores: ScoreRange


class KnownTasks(NamedTuple):
    """How many of some tasks are tasks of a certificate."""

    # of each task given
    known: Booleans
    # whether the certificate recognises each of its tasks
    complete: bool

    @property
    def number(self) -> int:
        """Number of the tasks that are recognised."""
        return int(self.known.sum())

    @property
    def sentence(self) -> str:
        """Say how many there are; empty if there are none."""
        least = "" if self.complete else "At least "
        return (
            f"{least}{self.number} of {self.known.size} tasks are those the certificate was issued "
            "on; give new tasks."
        ) * bool(self.number)


def known_tasks(inputs: TableInputs, labels: Sequence[str]) -> KnownTasks:
    """Look tasks up among those that a certificate was issued on."""
    digests = set(inputs["tasks"].split())
    known = [name_digest(label) in digests for label in folded_names(labels)]
    return KnownTasks(np.array(known, dtype=bool), len(digests) < MOST_DIGESTS)


@dataclass(frozen=True, eq=False)
class OrderedRows:
    """Rows in canonical order: by score (unscored last), then task label.

    Attributes
    ----------
    scores : float64 array
        Ascending, NaN (unscored) at the end.
    tasks : int32 array
        Index of each row's task in the sorted labels.
    labels : tuple of str
        Task labels, sorted; the integer 3 and the text "3" are one label.
    sha256 : str
        Hash of the content; does not depend on row order, on file format, or on whether task labels
        are numbers or text.
    """

    scores: Floats
    tasks: NDArray[np.int32]
    labels: tuple[str, ...]
    sha256: str

    @property
    def rows(self) -> int:
        """Number of rows, scored or not."""
        return int(self.scores.size)

    @cached_property
    def scored(self) -> int:
        """Number of rows that have a score."""
        return int(np.count_nonzero(~np.isnan(self.scores)))

    @property
    def unscored(self) -> int:
        """Number of rows without a score."""
        return self.rows - self.scored


@dataclass(frozen=True, eq=False)
class Observations(OrderedRows):
    """Rows with their outcomes, which order rows of one score and task.

    Attributes
    ----------
    outcomes : int8 array
        1 success, 0 failure; a drawn run may also be `UNLABELLED` or `UNCLEAR`.
    """

    outcomes: NDArray[np.int8]

    @property
    def labelled(self) -> Self:
        """Return the rows that have an outcome; the hash stays."""
        known = self.outcomes >= 0
        return self if known.all() else self._part(known)

    @property
    def labels_read(self) -> int:
        """Number of rows that a reviewer read, settled or not."""
        return int(np.count_nonzero(self.outcomes != UNLABELLED))

    def unknown_as_wrong(self, side: str) -> Self:
        """Return the rows with unknown outcomes counted as errors of the side."""
        wrong = np.int8(side == "reject")
        return replace(self, outcomes=np.where(self.outcomes < 0, wrong, self.outcomes))

    def drawn_rows(self, seed: int, draws: int = 1) -> Integers:
        """Return the places of one row of each task, scored or not, for every draw of a seed."""
        sizes = np.bincount(self.tasks, minlength=len(self.labels))
        random = kernels.task_draws(np.uint64(seed), draws * sizes.size).reshape(draws, -1)
        picked = (random * sizes.astype(np.uint64)) >> np.uint64(32)
        places = np.cumsum(sizes) - sizes + picked.astype(np.int64)
        # labels may name tasks that have no row left
        return np.argsort(self.tasks, kind="stable")[places[:, sizes > 0]]

    def one_a_task(self, seed: int) -> Self:
        """Return one row of each task, scored or not, drawn by the seed; the hash stays."""
        return self._part(np.sort(self.drawn_rows(seed)[0]))

    def _part(self, rows: Integers | Booleans) -> Self:
        scores, outcomes, tasks = self.scores[rows], self.outcomes[rows], self.tasks[rows]
        return replace(self, scores=scores, outcomes=outcomes, tasks=tasks)

    @cached_property
    def auroc(self) -> float | None:
        """AUROC of the scored rows, ties counted half; None with one class only."""
        scores, right, _ = self.scored_rows
        area = auroc(scores, right)
        return None if math.isnan(area) else area

    @cached_property
    def clustered_auroc(self) -> tuple[float, float]:
        """AUROC and its standard error over tasks (Obuchowski 1997, eq. 4), if it has a pair."""
        scores, outcomes, tasks = self.scored_rows
        right = outcomes == 1
        successes, failures = scores[right], scores[~right]
        # share of failures below each success, of successes above each failure
        below, above = _share_below(failures, successes), 1.0 - _share_below(successes, failures)
        area = float(below.mean())
        influence = np.empty(scores.size)
        influence[right] = (below - area) / successes.size
        influence[~right] = (above - area) / failures.size
        parts = np.bincount(tasks, weights=influence)[np.bincount(tasks) > 0]
        freedom = max(1, parts.size - 1)
        return area, float(np.sqrt(np.square(parts).sum() * parts.size / freedom))

    @cached_property
    def repeats(self) -> int:
        """Number of scored rows that repeat an earlier one in score, outcome and task.

        Only scores that no other task has count, as coarse scores are equal by chance.
        """
        same = self.of_one_task[1:]
        # equal rows are next to each other
        for column in self.scored_rows:
            same = same & (column[1:] == column[:-1])
        return int(np.count_nonzero(same))

    @cached_property
    def of_one_task(self) -> Booleans:
        """Whether only rows of one task have the score of a scored row."""
        scores, _, tasks = self.scored_rows
        heads = np.flatnonzero(np.append(True, scores[1:] != scores[:-1])[: scores.size])
        number = np.diff(np.append(heads, scores.size))
        # rows of one score are ordered by task
        return np.repeat(tasks[heads] == tasks[heads + number - 1], number)

    @property
    def scored_rows(self) -> tuple[Floats, NDArray[np.int8], NDArray[np.int32]]:
        """Scores, outcomes and tasks of the scored rows."""
        there = slice(self.scored)
        return self.scores[there], self.outcomes[there], self.tasks[there]

    @cached_property
    def task_sizes(self) -> Integers:
        """Scored rows of each task that has one, in the order of the labels."""
        often = np.bincount(self.scored_rows[2])
        return often[often > 0]

    @cached_property
    def task_successes(self) -> Integers:
        """Successes among them."""
        _, right, tasks = self.scored_rows
        return np.bincount(tasks, weights=right).astype(np.int64)[np.bincount(tasks) > 0]

    @cached_property
    def clusters(self) -> ClusterSummary:
        """Clustering of the scored outcomes by task."""
        return summarise_clusters(self.task_sizes, self.task_successes)

    @cached_property
    def at_ends(self) -> int:
        """How many scores share the lowest value, or the highest one: the larger number."""
        scores = self.scored_rows[0]
        return max((int((scores == end).sum()) for end in (*scores[:1], *scores[-1:])), default=0)

    @cached_property
    def spellings(self) -> dict[str, str]:
        """Task labels that differ from another only in spelling, each with that other."""
        return folding(self.labels)

    @cached_property
    def fingerprint(self) -> Inputs:
        """The ``inputs`` entry of a certificate."""
        digests = nsmallest(MOST_DIGESTS, map(name_digest, folded_names(self.labels)))
        found: Inputs = {"sha256": self.sha256, "rows": self.rows, "tasks": " ".join(digests)}
        if self.scored:
            found["scores"] = score_range(self.scored_rows[0])
        return found


def _share_below(scores: Floats, of: Floats) -> Floats:
    """Share of ascending scores below each of others, a tie counting one half."""
    ends = (np.searchsorted(scores, of, side) for side in ("left", "right"))
    return np.add(*ends) / (2 * scores.size)


def check_others(name: str, others: OrderedRows, table: OrderedRows) -> None:
    """Refuse a pilot table or a pool without scores, or with tasks of the calibration table."""
    if not others.scored:
        raise InputError(f"No row of the {name} has a score; score its runs first or leave it out.")
    if shared := shared_names(others.labels, table.labels):
        raise InputError(
            f"The {name} shares {len(shared)} task(s) with the calibration table, the first being "
            f"{in_both(*shared[0])}; take them out of the {name}."
        )


def score_range(scores: Floats) -> ScoreRange:
    """Return the range of scores that are sorted, none of them missing."""
    places = [round(level * (scores.size - 1)) for level in (0.0, *LEVELS, 1.0)]
    low, *quantiles, high = (significant(scores[place]) for place in places)
    return {"low": low, "high": high, "quantiles": quantiles}


def observe(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    *,
    partly: bool = False,
) -> Observations:
    """Validate a table and bring it into canonical order.

    Parameters
    ----------
    scores : array_like
        Judge scores, higher = more likely a success; NaN or None = unscored.
    outcomes : array_like
        0 or 1 a row.
    tasks : sequence of hashables
        Task of each row: text or numbers, never missing.
    partly : bool
        Whether an outcome may be `UNLABELLED` or `UNCLEAR`, as in a table of drawn runs.

    Returns
    -------
    Observations

    Raises
    ------
    InputError
        If lengths differ, the table is empty, or a value cannot be used. The message names the
        first such row.
    """
    with under_way(WorkStage("sorting the rows", 1)):
        values, right = checked_scores(scores), _outcomes(outcomes, partly=partly)
        labels, codes = task_codes(tasks)
        if not values.size == right.size == codes.size:
            raise InputError(
                f"scores, outcomes and tasks have {values.size}, {right.size} and {codes.size} "
                "rows; give one of each for every trajectory."
            )
        if not values.size:
            raise InputError(
                "The table has no rows; give at least one scored trajectory with its outcome and "
                "task."
            )
        order = np.lexsort((right, codes, values))
        ordered, successes = values[order], right[order].astype(np.int8)
        owner = codes[order].astype(np.int32)
        digest = content_hash(
            "rows/1",
            [ordered.size, labels],
            [(ordered, "<f8"), (successes, "|i1"), (owner, "<i4")],
        )
    return Observations(ordered, owner, labels, digest, successes)


def repeated_rows(
    observations: Observations,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    agents: Names | None,
) -> int:
    """Count rows that repeat an earlier one in score, outcome, task and, where given, agent.

    Scores that rows of other tasks have as well do not count.
    """
    if agents is None or not observations.repeats:
        return observations.repeats
    values, (_, owner) = checked_scores(scores), task_codes([str(agent) for agent in agents])
    if owner.size != values.size:
        raise InputError(
            f"there are {values.size} rows and {owner.size} agents; give the agent of every row."
        )
    rows = np.stack([values, _outcomes(outcomes), task_codes(tasks)[1], owner])
    known = observations.scores[: observations.scored][observations.of_one_task]
    rows = rows[:, np.isin(values, known)]
    return int(rows.shape[1] - np.unique(rows, axis=1).shape[1])


def content_hash(
    kind: str, named: Sequence[Any], columns: Sequence[tuple[NDArray[Any], str]]
) -> str:
    """Return the SHA-256 of a table: its kind, names, and columns with their types."""
    digest = hashlib.sha256(f"certify_assets/{kind}\n".encode("ascii"))
    digest.update(json.dumps(named).encode("ascii"))
    for column, dtype in columns:
        digest.update(np.ascontiguousarray(column, dtype=dtype).view(np.uint8).data)
    return digest.hexdigest()


def checked_scores(scores: ArrayLike) -> Floats:
    """Return scores as finite numbers, NaN where there is none."""
    values = _numbers(
        scores,
        "scores",
        "A score is not a number; give the log-odds or probability of success, and NaN for an "
        "unscored row.",
    )
    if (infinite := np.isinf(values)).any():
        raise InputError(
            f"The score at row {np.argmax(infinite)} (counting from 0) is infinite; give a finite "
            "log-odds, or NaN where there is no score."
        )
    # a NaN has many bit patterns and a zero has two; the hash must see one of each
    values[np.isnan(values)] = np.nan
    values += 0.0
    return values


def _outcomes(outcomes: ArrayLike, *, partly: bool = False) -> Integers:
    remedy = "give 1 for a success and 0 for a failure."
    values = _numbers(outcomes, "outcomes", f"An outcome is neither 0 nor 1; {remedy}")
    wrong = (values != 0) & (values != 1) & ~(partly & np.isin(values, (UNLABELLED, UNCLEAR)))
    if wrong.any():
        row = np.argmax(wrong)
        raise InputError(
            f"The outcome at row {row} (counting from 0) is {values[row]:.15g}; {remedy}"
        )
    return values.astype(np.int64)


def _numbers(column: ArrayLike, name: str, refusal: str) -> Floats:
    try:
        values = np.array(column, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(refusal) from None
    if values.ndim != 1:
        raise InputError(f"{name} has {values.ndim} dimensions; give one a row.")
    return values


def task_codes(tasks: Names) -> tuple[tuple[str, ...], Integers]:
    """Return the sorted task labels, and the place of each row's task among them."""
    # a pandas or Arrow column goes the way of an array
    array = np.asarray(tasks) if hasattr(tasks, "__array__") else None
    if array is not None and array.ndim != 1:
        raise InputError(f"tasks has {array.ndim} dimensions; give one task a row.")
    if array is not None and array.dtype.kind in "iu":
        distinct, codes = np.unique(array, return_inverse=True)
        named = list(map(str, distinct.tolist()))
    else:
        listed = list(tasks) if array is None else array.tolist()
        index: dict[Any, int] = defaultdict(count().__next__)
        try:
            codes = np.fromiter(map(index.__getitem__, listed), dtype=np.int64, count=len(listed))
        except TypeError:
            raise InputError(
                "A task label is a list or another value that cannot name a task; give text or "
                "whole numbers."
            ) from None
        named = list(map(_label, index))
        if "" in named:
            raise InputError(
                f"The task at row {np.argmax(codes == named.index(''))} (counting from 0) is "
                "missing; name the task of every trajectory."
            )
    ordered = sorted(dict.fromkeys(named))
    rank = dict(zip(ordered, range(len(ordered)), strict=True))
    ranks = np.fromiter(map(rank.__getitem__, named), dtype=np.int64, count=len(named))
    return tuple(ordered), ranks[codes]


def _label(value: Any) -> str:
    """Return a task's name, empty where it is missing."""
    if isinstance(value, str):
        return value
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    # True, 1 and 1.0 are one key of a dictionary, so they are one label
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        text = str(int(value))
    return "" if value is None or text in {"nan", "NaT", "<NA>"} else text
