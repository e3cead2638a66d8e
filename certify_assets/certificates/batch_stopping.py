"""When labels of a set are expected to cost more than they decide.

The value of a set after n labels with k errors is the gain, in runs, where they certify it, 0 where
they cannot, and else

    V(n, k) = max(0, −price + p V(n+1, k+1) + (1 − p) V(n+1, k)),

with the posterior mean p of the next error. A label costs as much as deciding a run gains. The
errors of a set are predicted by a mixture of Beta(30 m, 30 (1 − m)) over agents. To give up where
V is 0 is a stopping rule, and none changes the risk of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.batch_tables import PREDICTED, SetTable, last_label

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Before:
    """A set in a place of a chain: what was certified before it, and what may come after.

    Attributes
    ----------
    strict : SetTable or None
        The stricter set that is certified by then; None where it is the first.
    gain : float
        Runs that further sets are expected to decide, less their labels.
    labels : float
        Labels that these are expected to take.
    """

    strict: SetTable | None = None
    gain: float = 0.0
    labels: float = 0.0


@dataclass(frozen=True, eq=False)
class Stopping:
    """What a set is worth before its first label, and where to give up.

    Attributes
    ----------
    value : float
        Expected runs decided less labels, those of further sets included.
    labels : float
        Expected labels that no stricter set has paid.
    errors : int array, shape (labels + 1,)
        Smallest number of errors, after each number of labels, at which to give up.
    """

    value: float
    labels: float
    errors: _Integers


def stopping(
    table: SetTable, weights: _Floats, means: _Floats, places: Sequence[Before]
) -> list[Stopping]:
    """Return when to give up a set in each of some places.

    Parameters
    ----------
    table : SetTable
    weights, means : float array, shape (components,)
        Weight and mean error in the set of each predicted agent.
    places : sequence of Before
    """
    last = last_label(table.alpha, table.runs)
    gains = np.array([[table.runs + place.gain] for place in places])
    later = np.array([[place.labels] for place in places])
    shared, paid = np.zeros((2, len(places), 1))
    mixture = np.tile(weights, (len(places), 1))
    for row, place in enumerate(places):
        if (strict := place.strict) is not None:
            gains[row] -= strict.runs
            shared[row] = strict.runs / table.runs
            paid[row] = strict.needed[0] / shared[row]
            mixture[row] *= strict.chances(means)
    most = np.searchsorted(table.needed, np.arange(last + 1), side="right") - 1
    predict = _Prediction.of(mixture, means, last)
    value, labels = np.zeros((2, len(places), table.needed.size + 2))
    errors = np.zeros((len(places), last + 1), np.int64)
    top = table.needed.size
    for drawn in reversed(range(last + 1)):
        low, high = int(most[drawn]) + 1, min(drawn, top)
        if drawn < last and low <= high:
            chance = predict.next_error(drawn, low, high)
            price = 1.0 - shared * (drawn < paid)
            here, worse = slice(low, high + 1), slice(low + 1, high + 2)
            going = chance * value[:, worse] + (1 - chance) * value[:, here] - price
            taken = chance * labels[:, worse] + (1 - chance) * labels[:, here] + price
            labels[:, here] = np.where(going > 0, taken, 0.0)
            value[:, here] = np.maximum(going, 0.0)
        value[:, high + 1 :] = labels[:, high + 1 :] = 0.0
        value[:, :low], labels[:, :low] = gains, later
        # one more than the largest number of errors with a value
        errors[:, drawn] = value.shape[1] - np.argmax(value[:, ::-1] > 0, axis=1)
        errors[~(value > 0).any(axis=1), drawn] = 0
        top = int(errors[:, drawn].max()) - 1
    return [
        Stopping(float(value[row, 0]), float(labels[row, 0]), errors[row])
        for row in range(len(places))
    ]


def chain_stopping(tables: Sequence[SetTable], weights: _Floats, means: _Floats) -> list[Stopping]:
    """Return where to give up each set of a chain, from the widest to the strictest.

    Parameters
    ----------
    tables : sequence of SetTable
        The strictest first.
    weights : float array, shape (components,)
    means : float array, shape (components, sets)
    """
    found: list[Stopping] = []
    gain = labels = 0.0
    for place in reversed(range(len(tables))):
        strict = tables[place - 1] if place else None
        (one,) = stopping(tables[place], weights, means[:, place], [Before(strict, gain, labels)])
        gain, labels = one.value, one.labels
        found.append(one)
    return found[::-1]


@dataclass(frozen=True, eq=False)
class _Prediction:
    """The mixture over agents, in each place of a chain."""

    mixture: _Floats
    ahead: _Floats
    wrong: _Floats
    right: _Floats

    @classmethod
    def of(cls, mixture: _Floats, means: _Floats, last: int) -> _Prediction:
        from scipy.special import gammaln

        counts = np.arange(last + 1)
        a, b = PREDICTED * means[:, None], PREDICTED * (1 - means[:, None])
        return cls(mixture, a, gammaln(a + counts) - gammaln(a), gammaln(b + counts) - gammaln(b))

    def next_error(self, drawn: int, low: int, high: int) -> _Floats:
        """Return the chance that the next label is an error, after each of some errors."""
        errors = np.arange(low, high + 1)
        likely = self.wrong[:, errors] + self.right[:, drawn - errors]
        likely = np.exp(likely - likely.max(axis=0))
        found, every = self.mixture @ (likely * (self.ahead + errors)), self.mixture @ likely
        # no agent that is predicted comes so far: an error is expected
        chance = np.divide(found, every, out=np.ones_like(found), where=every > 0)
        return np.where(every > 0, chance / (PREDICTED + drawn), 1.0)
