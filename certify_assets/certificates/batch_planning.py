"""The plan of a batch certificate: which thresholds to try, and how to draw, by what this saves.

Batches like the one at hand are simulated from labelled runs of the past, whose tasks are
resampled, and audited as they would be. Labels in a set that is not certified cost nothing, since
its runs would be read anyway; so the share of the batch that is decided without a label is what a
plan is chosen by. A plan moves this share, never the validity of the certificate.
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
    error_limit,
    log_e_at,
    weighted_test,
)
from certify_assets.errors import InputError

_SIMULATIONS: Final = 200
_CANDIDATES: Final = 16
_FEWEST: Final = 5
_EVERY_LABEL: Final = 2000
_MOST_WEIGHTED: Final = 1000

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
    """

    scores: _Floats
    outcomes: NDArray[np.int64]
    tasks: Sequence[str]
    sha256: str = ""


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
        curve, wrong = _simulated(batch, side, history, rng)
        risk = curve.at(batch.scores)
        wanted = _candidates(batch, side) if threshold is None else [threshold]
        fewest = min(_FEWEST, int(np.isfinite(batch.scores).sum())) if threshold is None else 1
        sets = [
            _Candidate(value, inside, float(risk[inside].mean()))
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
    batch: Batch, side: str, history: History, rng: np.random.Generator
) -> tuple[RiskCurve, NDArray[np.bool_]]:
    """Fit the risk of the history, and draw errors of batches from refits on resampled tasks."""
    errors = history.outcomes == (1 if side == "reject" else 0)
    wrong = errors.astype(np.int64)
    curve = RiskCurve.fit(side, history.scores, wrong)
    tasks, codes = np.unique(np.asarray(history.tasks, dtype=str), return_inverse=True)
    rows = [np.flatnonzero(codes == task) for task in range(tasks.size)]
    scores = batch.scores
    found = np.empty((_SIMULATIONS, len(batch)), dtype=bool)
    for number in range(_SIMULATIONS):
        drawn = np.concatenate([rows[task] for task in rng.integers(tasks.size, size=tasks.size)])
        again = RiskCurve.fit(side, history.scores[drawn], wrong[drawn])
        found[number] = rng.random(len(batch)) < again.at(scores)
    return curve, found


def _ends(
    candidate: _Candidate, widest: NDArray[np.bool_], simulated: _Simulated
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return, a simulated batch, the number of draws of the widest set after which a nested one is
    decided, and whether it is certified then.
    """
    batches, decided = simulated.wrong.shape[0], int(candidate.inside.sum())
    drawn = candidate.inside[simulated.order]
    draws = np.cumsum(widest[simulated.order], axis=1, dtype=np.int32)[drawn].reshape(batches, -1)
    errors = np.cumsum(simulated.drawn_wrong[drawn].reshape(batches, -1), axis=1, dtype=np.int32)
    looks = _looks(decided)
    wrong, rows = errors[:, looks].astype(np.int64), np.arange(batches)
    log_e = log_e_at(
        wrong, looks + 1, decided, alpha=simulated.alpha, mean=candidate.mean, strength=STRENGTH
    )
    over = wrong >= error_limit(simulated.alpha, decided)
    passed = (log_e >= math.log(1 / simulated.delta)) & ~over
    first = np.argmax(passed | over, axis=1)
    return draws[rows, looks[first]].astype(np.int64), passed[rows, first]


def _looks(decided: int) -> NDArray[np.int64]:
    """Return after which labels a simulation looks: each of the first, then every half per cent."""
    places = np.arange(min(decided, _EVERY_LABEL))
    if decided > _EVERY_LABEL:
        steps = math.ceil(200 * math.log(decided / _EVERY_LABEL)) + 1
        later = np.geomspace(_EVERY_LABEL, decided, steps).astype(np.int64) - 1
        places = np.union1d(places, np.append(later, decided - 1))
    return places


def _best(sets: Sequence[_Candidate], simulated: _Simulated) -> _Choice:
    """Return the set, or the two nested ones, that save most."""
    runs = simulated.wrong.shape[1]
    single: list[_Choice] = []
    for each in sets:
        labels, passed = _ends(each, each.inside, simulated)
        saved = np.where(passed, int(each.inside.sum()) - labels, 0)
        single.append(_Choice((each,), float(labels.mean()), float(saved.mean()) / runs))
    found = list(single)
    # the sets that save most, each with a stricter one to fall back on
    for (wide,), _, _ in sorted(single, key=lambda item: -item.net)[:3]:
        size = int(wide.inside.sum())
        end, wide_passed = _ends(wide, wide.inside, simulated)
        drawn_of_wide = wide.inside[simulated.order]
        for strict in sets:
            if strict.inside.sum() >= size:
                continue
            first, passed = _ends(strict, wide.inside, simulated)
            # the wide set counts once the strict one is certified too
            stop = np.where(passed & wide_passed, np.maximum(first, end), end)
            inside = strict.inside[simulated.order][drawn_of_wide].reshape(stop.size, -1)
            drawn = np.cumsum(inside, axis=1, dtype=np.int32)
            labelled = drawn[np.arange(stop.size), stop - 1]
            saved = np.where(passed & wide_passed, size - stop, 0)
            alone = passed & ~wide_passed & (first <= stop)
            saved = np.where(alone, int(strict.inside.sum()) - labelled, saved)
            net = float(saved.mean()) / runs
            found.append(_Choice((strict, wide), float(stop.mean()), net))
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
