"""What a certificate says of an agent that CAL never saw: each agent left out in turn.

A certificate resamples tasks, so its δ covers new tasks of the agents that CAL has. For every
agent the same procedure is run without its runs, and the threshold that comes of it is read on the
agent's own. The judge is taken as it is, so where it was trained on runs of the agent it saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.bootstrap import resample_errors
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.counts import count_at
from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.inputs import observe
from certify_assets.certificates.verification import settings_of

#: with fewer agents, leaving one out says little of the next
FEWEST_AGENTS: Final = 3
_DRAWS = 2000
_LEVELS = (0.05, 0.95)


@dataclass(frozen=True)
class AgentError:
    """One agent, decided by a certificate of the others.

    Attributes
    ----------
    agent : str
    runs : int
        Its scored runs.
    threshold : float or None
        Certified without it; None where nothing is.
    covered : int
        Runs that this threshold decides.
    error : float or None
        Share of them that is decided wrongly; None where none is decided.
    low, high : float or None
        90 % interval over resamples of the agent's tasks.
    own_covered : int
        Runs that the certificate itself decides.
    own_error : float or None
        Share of those that is decided wrongly.
    """

    agent: str
    runs: int
    threshold: float | None
    covered: int
    error: float | None
    low: float | None
    high: float | None
    own_covered: int
    own_error: float | None


def leave_one_agent_out(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    agents: Sequence[Any] | NDArray[Any],
) -> list[AgentError]:
    """Certify without each agent in turn, and measure the threshold on the agent's own runs.

    Parameters
    ----------
    certificate : Certificate
        A certified one; its settings are those of every certificate without an agent.
    scores, outcomes, tasks, agents
        The table that it is of, with the agent of every row.

    Returns
    -------
    list of AgentError
        Sorted by agent; empty with fewer than `FEWEST_AGENTS` agents, where nothing is certified,
        and for a procedure that needs a pilot table.
    """
    values = np.asarray(scores, dtype=np.float64)
    labels, groups = np.asarray(outcomes), np.asarray(tasks)
    names = np.asarray([str(agent) for agent in agents])
    known = sorted(set(names.tolist()))
    if len(known) < FEWEST_AGENTS or certificate.threshold is None:
        return []
    settings = replace(settings_of(certificate), max_task_size=None)
    found = []
    for agent in known:
        mine = (names == agent) & np.isfinite(values)
        rest = names != agent
        if not mine.any():
            continue
        evaluation = evaluate(observe(values[rest], labels[rest], groups[rest]), settings)
        if evaluation.missing_input:
            return []
        chosen = evaluation.chosen
        threshold = None if chosen is None else float(evaluation.counts.thresholds[chosen])
        thresholds = np.array(
            [certificate.threshold, certificate.threshold if threshold is None else threshold]
        )
        counts = count_at(
            observe(values[mine], labels[mine], groups[mine]), certificate.side, thresholds
        )
        own, covered = (int(number) for number in counts.covered_trajectories)
        wrong = counts.error_totals.tolist()
        low = high = error = None
        if threshold is None:
            covered = 0
        elif covered:
            error = wrong[1] / covered
            draws = resample_errors(counts.covered[1], counts.errors[1], _DRAWS, certificate.seed)
            low, high = (float(value) for value in np.quantile(draws, _LEVELS))
        found.append(
            AgentError(
                agent=agent,
                runs=int(mine.sum()),
                threshold=threshold,
                covered=covered,
                error=error,
                low=low,
                high=high,
                own_covered=own,
                own_error=wrong[0] / own if own else None,
            )
        )
    return found


def largest_agent_error(rows: Sequence[AgentError]) -> AgentError | None:
    """Return the agent with the largest error; None where no run of any agent is decided."""
    measured = [row for row in rows if row.error is not None]
    return max(measured, key=lambda row: row.error or 0.0, default=None)
