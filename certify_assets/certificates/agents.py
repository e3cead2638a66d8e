"""What a certificate says of an agent that CAL never saw: each agent left out in turn.

A certificate resamples tasks, so its δ covers new tasks of the agents that CAL has. For every
agent the same procedure is run without its runs, and the threshold that comes of it is read on the
agent's own. The scores are those of the certificate: the judge may have been trained on the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.arrays import Names
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.counts import count_at
from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.inputs import observe
from certify_assets.certificates.path_limits import binomial_tails
from certify_assets.certificates.procedures import AVERAGE
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.verification import settings_of

#: with fewer agents, leaving one out says little of the next
FEWEST_AGENTS: Final = 3
#: with fewer, nothing is said of the next agent but what these did
ENOUGH_AGENTS: Final = 10
#: probability that `agent_shift` is found where no agent is above the budget, at most
SHIFT_LEVEL: Final = 0.05


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
    tail : float or None
        Probability of as large an error, or a larger one, were the true one α: binomial, with
        Kish's number of the agent's covered tasks.
    own_error : float or None
        The same error by the certificate itself.
    """

    agent: str
    runs: int
    threshold: float | None
    covered: int
    error: float | None
    tail: float | None
    own_error: float | None


def leave_one_agent_out(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    agents: Names,
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
        for a promise on average, which is not of the decided runs, and for a procedure that needs a
        pilot table. A pool that the certificate names is not used.
    """
    values = np.asarray(scores, dtype=np.float64)
    labels, groups = np.asarray(outcomes), np.asarray(tasks)
    names = np.asarray([str(agent) for agent in agents])
    settings = settings_of(certificate)
    known = np.unique(names).tolist()
    if len(known) < FEWEST_AGENTS or certificate.threshold is None:
        return []
    if settings.method.pilot or settings.method.promise == AVERAGE:
        return []
    found = []
    for agent in known:
        mine, rest = (names == agent) & np.isfinite(values), names != agent
        if not mine.any():
            continue
        made = evaluate(observe(values[rest], labels[rest], groups[rest]), settings)
        truth = labels[mine], groups[mine]
        own = _read(certificate.threshold, settings, values[mine], *truth)
        read = _read(made.threshold, settings, values[mine], *truth)
        found.append(
            AgentError(
                agent=agent,
                runs=int(mine.sum()),
                threshold=made.threshold,
                covered=read.covered,
                error=read.error,
                tail=read.tail,
                own_error=own.error,
            )
        )
    return found


class _Read(NamedTuple):
    """What a threshold does to the runs of one agent."""

    covered: int
    error: float | None
    tail: float | None


def _read(threshold: float | None, settings: Settings, *table: NDArray[Any]) -> _Read:
    """Read a threshold on the runs of an agent."""
    if threshold is None:
        return _Read(0, None, None)
    counts = count_at(observe(*table), settings.side, np.array([threshold]))
    if not (covered := int(counts.covered_trajectories[0])):
        return _Read(0, None, None)
    share, size = float(counts.selective_error[0]), counts.effective_tasks[0]
    return _Read(covered, share, excess(size, share, settings.alpha))


def excess(size: float, share: float, alpha: float) -> float:
    """Return P(Binomial(n, α) ≥ k), n Kish's number of tasks, k its share of errors."""
    # a task's share of errors varies no more than one trial of the same mean does
    return float(binomial_tails(np.array([size * (1.0 - share)]), np.array([size]), 1 - alpha)[0])


def largest_agent_error(rows: Sequence[AgentError]) -> AgentError | None:
    """Return the agent with the largest error; None where no run of any agent is decided."""
    measured = [row for row in rows if row.error is not None]
    return max(measured, key=lambda row: row.error or 0.0, default=None)


def agent_shift(rows: Sequence[AgentError], alpha: float) -> str:
    """Return which agents, left out, are above the budget beyond chance; empty for none.

    An agent is where its `tail` is at most `SHIFT_LEVEL` over the number of agents with a decided
    run (Bonferroni), so that the level is of all agents together. An interval over the agent's
    tasks would not do: of few tasks a bootstrap is too short, and the largest of several is chosen.
    """
    measured = [row for row in rows if row.tail is not None]
    level = SHIFT_LEVEL / max(1, len(measured))
    above = [row for row in measured if row.tail is not None and row.tail <= level]
    if not above:
        return ""
    names = ", ".join(
        f"{row.agent} ({row.error:.3f} of {row.covered} runs)"
        for row in sorted(above, key=lambda row: (row.tail, row.agent))
    )
    return (
        f"Left out of the certificate, {len(above)} of {len(measured)} agents are decided with an "
        f"error above alpha {alpha:g} beyond chance: {names}. A new agent may be another; a batch "
        "certificate does not depend on it."
    )
