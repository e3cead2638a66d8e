"""The procedures `one_run` and `average`, which are proved for one random run of every task.

Rows of different tasks are independent, so neither the correlation of attempts nor ties matter.
`one_run` keeps the error within α with confidence 1 − δ at all thresholds at once (Theorem 1).
`average` certifies the widest threshold with 1 + K ≤ α·N. Its share of wrong decisions is on
average at most α times the coverage (Theorem 3). It also keeps K within the limits at 2α. Where
every task has several labelled runs, `one_run` tests 400 tables of one run a task (Lemma 3).
Statements and proofs: docs/few-labels-proofs.md.

References
----------
Barber and Candès (2015), Controlling the false discovery rate via knockoffs.
Storey, Taylor and Siegmund (2004), Strong control, conservative point estimation and simultaneous
conservative consistency of false discovery rates.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.asked import Test
from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.counts import covered_rows
from certify_assets.certificates.inputs import UNLABELLED, Observations
from certify_assets.certificates.path_limits import binomial_tails, path_limits, planned_rows

_Floats = NDArray[np.float64]
_Numbers = NDArray[np.number[Any]]

#: tables of one run a task that are drawn where tasks have several labelled runs
DRAWS = 400
#: each of these tables is tested at this part of δ, and as large a part of them must pass
SHARE = 5
#: the cap of `average`: with confidence 1 − δ the error is below so many times α
CAP = 2

#: what both procedures assume, in words for users
ASSUMPTIONS = (
    "Tasks are drawn independently from the tasks that the certificate is used on, and later tasks "
    "come from there too. A hand-picked set of tasks is not covered, nor is drift.",
    "The judge and its scores were made without these labels.",
    "At most one run of each task was drawn for labels, by a seed fixed before any label; chance "
    "alone decided which. More labelled runs of a task are used as such draws.",
    "Side, error budget, confidence and procedure were fixed before anyone looked at the scores of "
    "the drawn runs. A drawn run without a score counts as never decided.",
    "Labels are right and do not depend on the order of reading. Every drawn run up to the stop is "
    "labelled; an unclear one counts as wrong.",
    "There was one exercise. Repeating it until something is certified voids the promise, unless "
    "the looks were named beforehand.",
)


def fewest_rows(procedure: str, alpha: float, level: float, *, several: bool = False) -> int:
    """Return the fewest rows with which a procedure can certify anything.

    Parameters
    ----------
    procedure : {"one_run", "average"}
    alpha, level : float
        Error budget, and the δ of the certificate.
    several : bool
        Whether tasks have several labelled runs.
    """
    if procedure == "one_run":
        return n_min(alpha, level / SHARE if several else level)
    return max(math.ceil(1 / alpha - 1e-9), n_min(CAP * alpha, level))


def one_run_tails(errors: _Numbers, covered: _Numbers, rows: int, test: Test) -> _Floats:
    """Return, for each threshold, a tail that is at most the level exactly where `one_run`
    certifies.

    Parameters
    ----------
    errors, covered : arrays of one shape
        K and N of every threshold: errors and rows that it covers.
    rows : int
        n, all drawn rows, scored or not.
    test : Test

    Returns
    -------
    float64 array
        P(Bin(min(N, n′), α) ≤ K)·δ/λ*, at most 1.
    """
    return _path_tails(
        errors, covered, rows, alpha=test.alpha, level=test.level, share=test.planned_share
    )


def average_tails(errors: _Numbers, covered: _Numbers, rows: int, test: Test) -> _Floats:
    """Return, for each threshold, a tail that is at most the level exactly where `average`
    certifies.

    It is the tail of the cap, P(Bin(N, 2α) ≤ K)·δ/λ*, where 1 + K ≤ α·N, and 1 elsewhere. The cap
    uses all rows. Parameters are those of :func:`one_run_tails`.
    """
    numerator, denominator = test.budget.as_integer_ratio()
    within = (1 + errors) * denominator <= numerator * covered
    capped = CAP * test.alpha
    tails = _path_tails(errors, covered, rows, alpha=capped, level=test.level, share=1.0)
    return np.where(within, tails, 1.0)


def _path_tails(
    errors: _Numbers, covered: _Numbers, rows: int, *, alpha: float, level: float, share: float
) -> _Floats:
    """Return binomial tails scaled so that λ* becomes the level."""
    planned = planned_rows(rows, alpha, level, share)
    limits = path_limits(planned, alpha, level)
    if not limits.level:
        return np.ones(np.shape(errors))
    tails = binomial_tails(errors, np.minimum(covered, planned), alpha)
    return np.minimum(1.0, tails / limits.level * level)


def several_tails(table: Observations, side: str, thresholds: _Floats, test: Test) -> _Floats:
    """Return tails of `one_run` where tasks have several labelled runs (Lemma 3).

    In each of 400 draws of one run a task, every threshold is tested at δ′ = δ/5. It is certified
    where at least δ′/δ of them pass: by Markov's inequality this has probability at most δ where
    the error exceeds α. The tail is δ′ divided by the share that passes. A drawn run without a
    score is never covered.
    """
    least = test.level / SHARE
    planned = planned_rows(len(table.labels), test.alpha, least, test.planned_share)
    most = path_limits(planned, test.alpha, least).most
    passed = np.zeros(thresholds.size)
    for picked in table.drawn_rows(test.seed, DRAWS):
        scored = np.sort(picked[picked < table.scored])
        errors, covered = row_counts(table, side, thresholds, scored)
        passed += errors <= most[np.minimum(covered, planned)]
    return np.minimum(1.0, least * DRAWS / np.maximum(passed, least))


def row_counts(
    table: Observations,
    side: str,
    thresholds: _Floats,
    rows: NDArray[np.int64] | slice | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return K and N of thresholds, over all scored rows or over some of them in their order."""
    rows = slice(table.scored) if rows is None else rows
    scores, wrong = table.scores[rows], table.outcomes[rows] == (side == "reject")
    covered = covered_rows(scores, side, thresholds)
    narrow_first = wrong if side == "reject" else wrong[::-1]
    return np.append(0, np.cumsum(narrow_first))[covered], covered


def stop_limit(procedure: str, rows: int, *, alpha: float, level: float, share: float) -> int:
    """Return the errors after which reading may stop: no wider threshold passes (Lemma 2)."""
    if procedure == "average":
        return math.floor(alpha * rows + 1e-9) - 1
    return path_limits(planned_rows(rows, alpha, level, share), alpha, level).stop


def rows_until_stop(wrong: NDArray[np.bool_], limit: int) -> int:
    """Return how many rows are read, from the narrow end, until more errors than a limit."""
    beyond = np.flatnonzero(np.cumsum(wrong) > limit)
    return int(beyond[0]) + 1 if beyond.size else wrong.size


def unlabelled_before_stop(table: Observations, side: str, limit: int) -> int | None:
    """Return the place of a scored row without a label that is read before the stop, if any."""
    scores, outcomes = table.scores[: table.scored], table.outcomes[: table.scored]
    unread = outcomes == UNLABELLED
    # of one score the labelled rows first
    order = np.lexsort((unread, scores if side == "reject" else -scores))
    wrong = table.unknown_as_wrong(side).outcomes[: table.scored] == (side == "reject")
    read = rows_until_stop((wrong & ~unread)[order], limit)
    missing = np.flatnonzero(unread[order][:read])
    return int(order[missing[0]]) if missing.size else None
