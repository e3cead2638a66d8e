"""The plan of a batch certificate: which thresholds to try, and how to draw, by what this saves.

Batches like the one at hand are simulated from labelled runs of the past, whose tasks are
resampled and whose odds of an error vary as between agents, and audited as they would be. Labels in
a set that is not certified cost nothing, since its runs would be read anyway; so the share of the
batch that is decided without a label is what a plan is chosen by. A plan moves this share, never
the validity of the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.batch import (
    STRENGTH,
    Batch,
    BatchPlan,
    RiskCurve,
    Trace,
    error_limit,
    log_e_at,
    weighted_test,
)
from certify_assets.errors import InputError

_SIMULATIONS: Final = 100
_CANDIDATES: Final = 16
_FEWEST: Final = 5
_EVERY_LABEL: Final = 2000
_MOST_WEIGHTED: Final = 1000
_NESTED: Final = (2, 3, 5)
_BEYOND: Final = (0, 2, 4)
# of the prior's mean, in budgets
_LARGEST_PRIOR: Final = 0.5
# of the logarithm of the odds of an error between agents
_USUAL_SPREAD: Final = 0.5
_LARGEST_SPREAD: Final = 1.5

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class History:
    """Labelled runs of the past, from which a plan predicts errors.

    Parameters
    ----------
    scores : float64 array, shape (n,)
        Finite.
    outcomes : int array of 0 and 1, shape (n,)
    tasks : sequence of str
    sha256 : str
        Hash of the file.
    agents : sequence of str
        Empty where they are not known: how much they differ is then assumed.
    """

    scores: _Floats
    outcomes: NDArray[np.int64]
    tasks: Sequence[str]
    sha256: str = ""
    agents: Sequence[str] = ()


def plan_batch(
    batch: Batch,
    *,
    side: str,
    alpha: float,
    delta: float,
    threshold: float | None = None,
    predicted_error: float | None = None,
    history: History | None = None,
    certificate_sha256: str = "",
    seed: int = 42,
) -> BatchPlan:
    """Choose thresholds, prior and weights of a draw by the share of the batch that they save.

    Parameters
    ----------
    batch : Batch
    side, alpha, delta
    threshold : float, optional
        The one threshold to certify; by default candidates are chosen from the history.
    predicted_error : float, optional
        Mean of the prior without a history; .3 α unless given.
    history : History, optional
        Its tasks are resampled to simulate batches like this one.
    certificate_sha256 : str
        Certificate that the threshold is of.
    seed : int
        Of the simulation.

    Raises
    ------
    InputError
        If there is neither a threshold nor a history, or no set of the batch can be certified.
    """
    if threshold is None and history is None:
        raise InputError(
            "Nothing says which threshold to try: the certificate certifies none; give --history "
            "with labelled past runs, or --threshold."
        )
    rng = np.random.default_rng(seed)
    if history is None:
        assert threshold is not None
        guess = 0.3 * alpha if predicted_error is None else predicted_error
        mean = min(max(guess, 0.005), 0.8 * alpha)
        sets = [_Candidate(threshold, batch.decided(side, threshold), mean)]
        risks = rng.beta(STRENGTH * mean, STRENGTH * (1 - mean), (_SIMULATIONS, 1))
        wrong = rng.random((_SIMULATIONS, len(batch))) < risks
        curve = None
    else:
        curve, wrong = _simulated(batch, side, history, alpha, rng)
        risk = curve.at(batch.scores)
        wanted = _candidates(batch, side) if threshold is None else [threshold]
        # a prior near the budget would take labels to believe what few errors show
        fewest = min(_FEWEST, int(np.isfinite(batch.scores).sum())) if threshold is None else 1
        sets = [
            _Candidate(value, inside, min(float(risk[inside].mean()), _LARGEST_PRIOR * alpha))
            for value in wanted
            if (inside := batch.decided(side, value)).sum() >= max(fewest, 1)
        ]
    sets = [each for each in sets if each.inside.any()]
    if not sets:
        raise InputError(
            "No threshold decides a run of this batch; nothing can be saved by certifying it."
        )
    simulated = _Simulated(wrong, rng.random(wrong.shape), alpha, delta)
    best = _best(sets, simulated)
    draw = None
    # betting on weights goes through all runs at every label: too long for a large set
    small = int(best.sets[0].inside.sum()) <= _MOST_WEIGHTED
    if curve is not None and len(best.sets) == 1 and small:
        weighted = _weighted(batch, curve, best.sets, simulated)
        if weighted.net > best.net:
            best, draw = weighted, curve
    return BatchPlan(
        side=side,
        alpha=alpha,
        delta=delta,
        thresholds=tuple(each.threshold for each in best.sets),
        predicted_errors=tuple(each.mean for each in best.sets),
        risk=draw,
        certificate_sha256=certificate_sha256,
        history_sha256="" if history is None else history.sha256,
        expected_labels=round(best.labels, 3),
        expected_net_share=round(best.net, 6),
    )


@dataclass(frozen=True, eq=False)
class _Simulated:
    """Simulated batches: which runs are decided wrongly, when each is drawn, and the budget."""

    wrong: NDArray[np.bool_]
    keys: _Floats
    alpha: float
    delta: float

    @cached_property
    def order(self) -> NDArray[np.int32]:
        """Runs of every batch in the order of drawing."""
        return np.argsort(self.keys, axis=1).astype(np.int32)

    @cached_property
    def drawn_wrong(self) -> NDArray[np.bool_]:
        """Whether each run is wrong, in the order of drawing."""
        return np.take_along_axis(self.wrong, self.order, 1)


class _Choice(NamedTuple):
    """Nested sets with their mean labels and net share over simulated batches."""

    sets: tuple[_Candidate, ...]
    labels: float
    net: float


@dataclass(frozen=True, eq=False)
class _Candidate:
    threshold: float
    inside: NDArray[np.bool_]
    mean: float


def _candidates(batch: Batch, side: str) -> list[float]:
    scored = np.sort(batch.scores[np.isfinite(batch.scores)])
    if not scored.size:
        return []
    method: Any = "lower" if side == "reject" else "higher"
    shares = np.linspace(1 / _CANDIDATES, 1, _CANDIDATES)
    values = np.quantile(scored, shares if side == "reject" else 1 - shares, method=method)
    return list(dict.fromkeys(values.tolist()))


def _simulated(
    batch: Batch, side: str, history: History, alpha: float, rng: np.random.Generator
) -> tuple[RiskCurve, NDArray[np.bool_]]:
    """Fit the risk of the history, and draw errors of batches from refits on resampled tasks.

    The odds of an error of a new agent differ from the history's by a factor, as those of its
    agents differ from each other.
    """
    errors = history.outcomes == (1 if side == "reject" else 0)
    wrong = errors.astype(np.int64)
    curve = RiskCurve.fit(side, history.scores, wrong)
    spread = _spread(history, curve.at(history.scores), wrong, alpha)
    tasks, codes = np.unique(np.asarray(history.tasks, dtype=str), return_inverse=True)
    rows = [np.flatnonzero(codes == task) for task in range(tasks.size)]
    found = np.empty((_SIMULATIONS, len(batch)), dtype=bool)
    for number in range(_SIMULATIONS):
        drawn = np.concatenate([rows[task] for task in rng.integers(tasks.size, size=tasks.size)])
        again = RiskCurve.fit(side, history.scores[drawn], wrong[drawn])
        risk = again.at(batch.scores)
        odds = risk / (1 - risk) * math.exp(spread * rng.standard_normal())
        found[number] = rng.random(len(batch)) < odds / (1 + odds)
    return curve, found


def _spread(history: History, risk: _Floats, wrong: NDArray[np.int64], alpha: float) -> float:
    """Return the standard deviation, over agents, of the logarithm of errors against predicted."""
    if not len(history.agents):
        return _USUAL_SPREAD
    # the runs that a threshold may decide; where the judge calls none safe, all of them
    near = risk <= 2 * alpha
    near = near if near.any() else np.ones(risk.size, dtype=bool)
    codes = np.unique(np.asarray(history.agents, dtype=str)[near], return_inverse=True)[1]
    predicted = np.bincount(codes, weights=risk[near])
    found = np.bincount(codes, weights=wrong[near])
    kept = predicted >= 1
    if kept.sum() < 2:
        return _USUAL_SPREAD
    ratios = np.log((found[kept] + 0.5) / (predicted[kept] + 0.5))
    between = float(np.mean(ratios**2) - np.mean(1 / (predicted[kept] + 0.5)))
    # few agents say little of their spread: half of it is the usual one
    weight = kept.sum() / (kept.sum() + 4)
    variance = weight * max(between, 0.0) + (1 - weight) * _USUAL_SPREAD**2
    return min(math.sqrt(variance), _LARGEST_SPREAD)


def _looks(decided: int) -> NDArray[np.int64]:
    """Return after which labels a simulation looks: each of the first, then every half per cent."""
    places = np.arange(min(decided, _EVERY_LABEL))
    if decided > _EVERY_LABEL:
        steps = math.ceil(200 * math.log(decided / _EVERY_LABEL)) + 1
        later = np.geomspace(_EVERY_LABEL, decided, steps).astype(np.int64) - 1
        places = np.union1d(places, np.append(later, decided - 1))
    return places


def _trace(sets: Sequence[_Candidate], simulated: _Simulated) -> tuple[Trace, NDArray[np.int64]]:
    """Audit every simulated batch by a uniform draw of the widest set; return the labels looked
    after, less one.
    """
    batches, sizes = simulated.wrong.shape[0], np.array([int(each.inside.sum()) for each in sets])
    widest = sets[-1].inside[simulated.order]
    wrong = simulated.drawn_wrong[widest].reshape(batches, -1)
    limits = np.array([error_limit(simulated.alpha, int(size)) for size in sizes])
    looks = _looks(int(sizes[-1]))
    shape = (batches, len(sets), looks.size)
    own, found, log_e = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape)
    for place, each in enumerate(sets):
        hit = each.inside[simulated.order][widest].reshape(batches, -1)
        own[:, place] = np.cumsum(hit, axis=1, dtype=np.int32)[:, looks]
        found[:, place] = np.cumsum(hit & wrong, axis=1, dtype=np.int32)[:, looks]
        log_e[:, place] = log_e_at(
            found[:, place],
            own[:, place],
            int(sizes[place]),
            alpha=simulated.alpha,
            mean=each.mean,
            strength=STRENGTH,
        )
    # before the first label of a set its e-process is 1
    log_e[own == 0] = 0.0
    means = np.array([each.mean for each in sets])
    return Trace(sizes, limits, means, own, found, log_e, simulated.delta), looks


def _best(sets: Sequence[_Candidate], simulated: _Simulated) -> _Choice:
    """Return the set, or the nested ones, that save most."""
    runs = simulated.wrong.shape[1]

    def audited(places: Sequence[int]) -> tuple[_Choice, NDArray[np.int64]]:
        chosen = tuple(sets[place] for place in places)
        trace, looks = _trace(chosen, simulated)
        ends = trace.stops - 1
        saved = trace.saved[np.arange(ends.size), ends]
        labels = float((looks[ends] + 1).mean())
        return _Choice(chosen, labels, float(saved.mean()) / runs), saved

    singles = [audited([place]) for place in range(len(sets))]
    found = [single for single, _ in singles]
    order = sorted(range(len(sets)), key=lambda place: -found[place].net)
    # the sets that turn out best for one simulated agent or another
    saved = np.stack([each for _, each in singles])
    turned_out = np.sort(np.argmax(saved, axis=0)[saved.max(axis=0) > 0])
    families: dict[tuple[int, ...], None] = {}
    for number in _NESTED if turned_out.size else ():
        middles = (np.arange(number) + 0.5) / number * turned_out.size
        families[tuple(dict.fromkeys(turned_out[middles.astype(int)].tolist()))] = None
    # the best set with stricter ones to fall back on and wider ones to gain
    for beyond in _BEYOND:
        widest = min(order[0] + beyond, len(sets) - 1)
        for number in _NESTED:
            levels = np.linspace((widest + 1) / number, widest + 1, number).round().astype(int)
            families[tuple(sorted({max(int(level), 1) - 1 for level in levels}))] = None
    found.extend(audited(places)[0] for places in families if len(places) > 1)
    return max(found, key=lambda item: item.net)


def _weighted(
    batch: Batch, curve: RiskCurve, sets: tuple[_Candidate, ...], simulated: _Simulated
) -> _Choice:
    """Audit the one set by a weighted draw instead."""
    inside = sets[0].inside
    weights, risks = (values[inside] for values in curve.weights(batch.scores))
    labels, saved = [], []
    for errors, keys in zip(simulated.wrong[:, inside], simulated.keys[:, inside], strict=True):
        order = np.argsort(-np.log(keys) / weights, kind="stable")
        test = weighted_test(
            errors[order], order, weights, risks, alpha=simulated.alpha, delta=simulated.delta
        )
        labels.append(test.labels)
        saved.append(int(inside.sum()) - test.labels if test.certified else 0)
    return _Choice(sets, float(np.mean(labels)), float(np.mean(saved)) / len(batch))
