"""What the leak controls saw: how lengths and steps spread by outcome, how agents fare, where verdict phrases stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AgentRate", "LeakEvidence", "PhraseEvidence", "Spread", "leak_evidence"]

_BINS = 24
_EXAMPLES = 2
_AROUND = 60


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram of one quantity by outcome.

    Parameters
    ----------
    edges : tuple of float
        Of the bins, one more than there are bins; logarithmic where the quantity spans more than a factor of 10.
    successes, failures : tuple of int
        Trajectories in every bin.
    """

    edges: tuple[float, ...]
    successes: tuple[int, ...]
    failures: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AgentRate:
    """How one agent fared: labelled trajectories, their tasks, the share that succeeded."""

    agent: str
    trajectories: int
    tasks: int
    success_rate: float


@dataclass(frozen=True, slots=True)
class PhraseEvidence:
    """Where a verdict phrase stands.

    Parameters
    ----------
    name : str
        Key of `VERDICT_PHRASES`.
    trajectories : int
        Labelled trajectories whose instruction or observations have it.
    success_rate_with, success_rate_without : float or None
        Success rate of those and of the others; None where there are none.
    examples : tuple of (str, int, str)
        For a success and a failure, where there are both: trajectory, number of the step (0 is the instruction), and the text
        around the phrase where it stands last.
    """

    name: str
    trajectories: int
    success_rate_with: float | None
    success_rate_without: float | None
    examples: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class LeakEvidence:
    """What the controls saw: spreads of characters (of the uncut rendering) and steps, agents, phrases."""

    length: Spread
    steps: Spread
    agents: tuple[AgentRate, ...]
    phrases: tuple[PhraseEvidence, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the evidence as a JSON object."""
        document = asdict(self)
        for part in (document["length"], document["steps"]):
            part |= {name: list(values) for name, values in part.items()}
        phrases = [
            item | {"examples": [list(example) for example in item["examples"]]}
            for item in document["phrases"]
        ]
        return document | {"agents": list(document["agents"]), "phrases": phrases}


def leak_evidence(
    rows: pd.DataFrame,
    lengths: NDArray[np.float64],
    steps: NDArray[np.float64],
    outcomes: NDArray[np.int64],
    phrases: Mapping[str, re.Pattern[str]],
) -> LeakEvidence:
    """Gather the evidence.

    Parameters
    ----------
    rows : pandas.DataFrame, n rows
        Labelled trajectories.
    lengths, steps : float arrays, shape (n,)
        Characters of the uncut rendering and number of steps.
    outcomes : int array, shape (n,)
        1 = success.
    phrases : mapping of str to compiled pattern
        Those that occur.
    """
    grouped = rows.assign(outcome=outcomes).groupby("agent")
    agents = [
        AgentRate(
            str(agent), len(part), int(part["task_id"].nunique()), float(part["outcome"].mean())
        )
        for agent, part in sorted(grouped)
    ]
    return LeakEvidence(
        length=_spread(lengths, outcomes),
        steps=_spread(steps, outcomes),
        agents=tuple(agents),
        phrases=tuple(_phrase(name, pattern, rows, outcomes) for name, pattern in phrases.items()),
    )


def _spread(values: NDArray[np.float64], outcomes: NDArray[np.int64]) -> Spread:
    if not values.size:
        return Spread((0.0, 1.0), (0,), (0,))
    low, high = float(values.min()), float(values.max())
    if np.equal(values, np.round(values)).all() and high - low < 10 * _BINS:
        # equally many whole numbers in every bin, so that none is empty by arithmetic
        wide = int((high - low) // _BINS) + 1
        edges = np.arange(low - 0.5, high + wide, wide)
    elif low > 0 and high > 10 * low:
        edges = np.geomspace(low, high, _BINS + 1)
        edges[0], edges[-1] = low, high
    else:
        edges = np.linspace(low, high, _BINS + 1)
    counts = [np.histogram(values[outcomes == side], edges)[0].tolist() for side in (1, 0)]
    return Spread(tuple(float(edge) for edge in edges), *(tuple(side) for side in counts))


def _phrase(
    name: str, pattern: re.Pattern[str], rows: pd.DataFrame, outcomes: NDArray[np.int64]
) -> PhraseEvidence:
    places = [_last(pattern, *run) for run in zip(rows["instruction"], rows["steps"], strict=True)]
    marks = np.array([place is not None for place in places], dtype=np.bool_)
    rates = [float(outcomes[side].mean()) if side.any() else None for side in (marks, ~marks)]
    # one of each outcome says more than two alike
    order = [
        index
        for side in (1, 0)
        for index in np.flatnonzero(marks & (outcomes == side))[:1].tolist()
    ]
    order += [index for index in np.flatnonzero(marks).tolist() if index not in order]
    identities = rows["trajectory_id"].tolist()
    examples = tuple(
        (str(identities[index]), *place)
        for index in order[:_EXAMPLES]
        if (place := places[index]) is not None
    )
    return PhraseEvidence(name, int(marks.sum()), rates[0], rates[1], examples)


def _last(pattern: re.Pattern[str], instruction: str, steps: Any) -> tuple[int, str] | None:
    """Return the number of the last step that has the phrase, 0 for the instruction, and the text around it."""
    for number, text in reversed(
        [(0, instruction), *((number, step["observation"]) for number, step in enumerate(steps, 1))]
    ):
        matches = list(pattern.finditer(text))
        if matches:
            start, end = (
                max(0, matches[-1].start() - _AROUND),
                min(len(text), matches[-1].end() + _AROUND),
            )
            return (
                number,
                f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}",
            )
    return None
