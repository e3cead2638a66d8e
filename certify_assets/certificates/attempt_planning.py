"""Planning several labelled runs a task by `pseudo_task`, next to one run by `one_run`.

The model is that of :mod:`~certify_assets.certificates.row_planning`, with one effect u a task: its
attempts succeed or fail together as far as u says. Tables of labelled runs are drawn from the
scores and certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.inputs import observe
from certify_assets.certificates.procedures import CONFIDENT, PROMISED
from certify_assets.certificates.row_planning import RowModel, RowPlan
from certify_assets.certificates.settings import Settings
from certify_assets.work import counted

#: attempts a task that are planned, next to one and to all
ATTEMPTS: Final = (2, 4)
#: fewer labels pay where they decide so large a part of what all labels decide
_PAYS: Final = 0.8
_TABLES: Final = 60
#: runs of the largest table that is drawn; of more, a part of the tasks is
_MOST_ROWS: Final = 20_000


def designs(sizes: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the attempts a task that a table of tasks of some sizes can be planned for.

    A draw has equally many runs of every task. All runs are the last design.
    """
    least, most = int(sizes.min()), int(sizes.max())
    drawn = [attempts for attempts in ATTEMPTS if attempts <= least and attempts < most]
    return (*drawn, *([most] if most > 1 else []))


def plan_attempts(
    model: RowModel,
    scores: NDArray[np.float64],
    tasks: Sequence[Any] | NDArray[Any],
    settings: Settings,
    *,
    attempts: int,
    number: int | None = None,
) -> RowPlan:
    """Say what labelling some attempts of every task would give, by the default procedure.

    Parameters
    ----------
    model : RowModel
        The guess, for these scores.
    scores : float64 array, tasks : sequence
        Of all runs, NaN where there is no score.
    settings : Settings
        Of the certificate, whatever its procedure.
    attempts : int
        Runs of a task that are labelled, at most.
    number : int, optional
        Tasks, by default those of the table; more than these are drawn with replacement.
    """
    from scipy.special import expit

    asked = settings.replace(procedure=PROMISED[CONFIDENT], looks=1, look=1)
    scored = np.isfinite(scores)
    found, code = np.unique(np.asarray(tasks)[scored], return_inverse=True)
    order = np.argsort(code, kind="stable")
    values = scores[scored][order]
    means = model.means(values)
    sizes = np.bincount(code)
    starts = np.cumsum(sizes) - sizes
    wanted = found.size if number is None else number
    kept = min(wanted, max(1, int(_MOST_ROWS / np.minimum(sizes, attempts).mean())))
    covered = []
    for trial in counted(f"planning {attempts} runs a task", range(_TABLES)):
        rng = np.random.default_rng([settings.seed, trial])
        chosen = rng.choice(found.size, size=kept, replace=kept > found.size)
        owner = np.repeat(np.arange(kept), sizes[chosen])
        place = np.arange(owner.size) - (np.cumsum(sizes[chosen]) - sizes[chosen])[owner]
        # the labelled runs of a task are the first in a random order
        shuffled = np.lexsort((rng.random(owner.size), owner))[place < attempts]
        rows, of = (starts[chosen][owner] + place)[shuffled], owner[shuffled]
        right = rng.random(rows.size) < expit(means[rows] + rng.standard_normal(kept)[of])
        made = evaluate(observe(values[rows], right.astype(np.int64), of), asked)
        covered.append(_share(values, made.threshold, settings.side))
    shares = np.array(covered)
    labels = wanted * float(np.minimum(sizes, attempts).mean())
    return RowPlan(wanted, float(shares.mean()), float((shares > 0).mean()), labels)


def _share(values: NDArray[np.float64], threshold: float | None, side: str) -> float:
    if threshold is None:
        return 0.0
    return float(np.mean(values <= threshold if side == "reject" else values >= threshold))


def fewest_that_pay(plans: Sequence[tuple[int, RowPlan]]) -> int | None:
    """Return the fewest attempts a task that decide four fifths of what all decide.

    Parameters
    ----------
    plans : sequence of (attempts, plan)
        From the fewest attempts to all of them.

    Returns
    -------
    int or None
        None where nothing is expected to be decided.
    """
    most = max((plan.coverage for _, plan in plans), default=0.0)
    if not most:
        return None
    return next(attempts for attempts, plan in plans if plan.coverage >= _PAYS * most)
