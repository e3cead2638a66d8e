"""The plan of a batch certificate: the chain of sets to label that is expected to save most.

Labelled runs of the past predict the errors of a set: their error at each score, with its log odds
moved as agents usually differ. A chain begins with one of the candidate sets and widens by a fixed
ratio. Its value is the expected number of runs decided
less labels (`batch_tables`). A plan moves this value, never the validity of the certificate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates.batch import Batch, BatchPlan, SidePlan
from certify_assets.certificates.batch_tables import (
    SetTable,
    Stopping,
    chain_stopping,
    set_table,
    stopping,
)
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.procedures import EVERY_PROCEDURE
from certify_assets.errors import InputError

_CANDIDATES = 16
_FEWEST = 5
#: by which a chain widens
_RATIO = 1.15
#: nodes of the log odds of an error between agents, whose standard deviation is taken as 1
_NODES = 7
# errors in budgets, where there is no history
_UNKNOWN = (0.1, 0.3, 0.6, 1.0, 2.0, 4.0)
_SURE = 1e-4


@dataclass(frozen=True, eq=False)
class History:
    """Labelled runs of the past, from which a plan predicts errors.

    Parameters
    ----------
    scores : float64 array, shape (n,)
        Finite.
    outcomes : int array of 0 and 1, shape (n,)
    sha256 : str
        Hash of the file.
    """

    scores: Floats
    outcomes: Integers
    sha256: str = ""


@dataclass(frozen=True)
class RiskCurve:
    """Predicted error by score: the steps of an isotonic regression.

    Attributes
    ----------
    scores, errors : float array
        Largest score of every step, ascending, and the error predicted up to it.
    """

    scores: Floats
    errors: Floats

    @classmethod
    def fit(cls, side: str, scores: Floats, errors: Integers) -> RiskCurve:
        """Fit the error of a side: it grows with the score on the reject side and falls on the
        release side. Half an error and half a right run are added to every step.
        """
        from scipy.optimize import isotonic_regression

        values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
        found = np.bincount(places, weights=errors)
        fit = isotonic_regression(found / counts, weights=counts, increasing=side == "reject")
        starts = fit.blocks[:-1]
        wrong, runs = (np.add.reduceat(each, starts) for each in (found, counts))
        return cls(values[fit.blocks[1:] - 1], (wrong + 0.5) / (runs + 1.0))

    def at(self, scores: Floats) -> Floats:
        """Return the predicted error at scores; a missing score counts as 0."""
        places = np.searchsorted(self.scores, np.nan_to_num(scores), side="left")
        return self.errors[np.minimum(places, self.errors.size - 1)]


def plan_batch(
    batch: Batch,
    *,
    alphas: Mapping[str, float],
    delta: float,
    history: History | None = None,
    thresholds: Mapping[str, float] | None = None,
    certificate_sha256: str = "",
) -> BatchPlan | None:
    """Choose the sets of each side that are expected to save most.

    Parameters
    ----------
    batch : Batch
    alphas : mapping of str to float
        Error budget of each side to plan.
    delta : float
        Risk limit of all sides together; each side that is planned has an equal part.
    history : History, optional
    thresholds : mapping of str to float, optional
        The one threshold of each side. By default sets are chosen by the history, and a side on
        which labels are expected to save nothing is left out.
    certificate_sha256 : str
        Hash of the certificate that the thresholds come from.

    Returns
    -------
    BatchPlan or None
        None where no labels are worth it.

    Raises
    ------
    InputError
        If there is neither a history nor thresholds, or none decides a run.
    """
    if history is None and not thresholds:
        raise InputError(
            "Nothing says which threshold to try: the certificate certifies none. Give --history "
            "with labelled past runs, or --threshold."
        )
    limits, cut = thresholds or {}, None
    if len(alphas) > 1:
        limits, cut = _parted(limits) if limits else ({}, _even_score(history))
    sides = []
    for side in SIDES:
        if side in alphas:
            part = batch.side(side, cut)
            asked = _Asked(side, alphas[side], delta / len(alphas), history)
            found = asked.plan(part, limits.get(side))
            sides += [found] if found else []
    if 0 < len(sides) < len(alphas):
        kept: dict[str, float] = {plan.side: plan.alpha for plan in sides}
        return plan_batch(
            batch,
            alphas=kept,
            delta=delta,
            history=history,
            certificate_sha256=certificate_sha256,
        )
    if not sides:
        return None
    return BatchPlan(
        sides=tuple(sides),
        cut=cut,
        certificate_sha256=certificate_sha256,
        history_sha256="" if history is None else history.sha256,
    )


def plan_certified(
    batch: Batch,
    issued: Sequence[Certificate],
    *,
    side: str | None = None,
    alpha: float | None = None,
    delta: float | None = None,
    threshold: float | None = None,
    history: History | None = None,
) -> BatchPlan | None:
    """Plan a batch from certificates, which set sides, budgets and thresholds by default.

    Parameters
    ----------
    batch : Batch
    issued : sequence of Certificate
    side : {"reject", "release", "both"}, optional
        By default every side that has a certificate.
    alpha, delta, threshold : float, optional
    history : History, optional
        Past runs by which sets are chosen. By default the sets are the certified thresholds.

    Raises
    ------
    InputError
        If it is not clear which certificate counts, or a side lacks a threshold.
    """
    items = _one_a_side(issued, alpha)
    first = next(iter(items.values()))
    sides = SIDES if side == "both" else tuple(items)
    thresholds = None
    if threshold is not None:
        if len(sides) > 1:
            raise InputError("--threshold applies to one side. Leave it out, or name the side.")
        thresholds = {sides[0]: threshold}
    elif history is None:
        thresholds = {
            name: item.threshold for name, item in items.items() if item.threshold is not None
        }
        if side == "both" and len(thresholds) < len(sides):
            raise InputError(
                "Not both sides are certified. Give --history with labelled past runs, or name the "
                "side."
            )
        sides = tuple(thresholds)
    made = plan_batch(
        batch,
        alphas={name: alpha or items.get(name, first).alpha for name in sides},
        delta=delta or min(item.delta for item in items.values()),
        history=history,
        thresholds=thresholds,
        certificate_sha256=first.sha256,
    )
    return made and made.replace(score_range=first.inputs.get("scores"))


def _one_a_side(issued: Sequence[Certificate], alpha: float | None) -> dict[str, Certificate]:
    """Return one certificate of each side: of `alpha` if there is one, of the first procedure."""
    found: dict[str, Certificate] = {}
    for item in sorted(
        issued, key=lambda item: (item.alpha != alpha, EVERY_PROCEDURE.index(item.procedure))
    ):
        first = found.setdefault(item.side, item)
        if first.procedure == item.procedure and alpha != first.alpha != item.alpha:
            raise InputError(
                f"The {item.side} side has certificates at {first.alpha:g} and {item.alpha:g}. "
                "Choose one with --alpha."
            )
    return {side: found[side] for side in SIDES if side in found}


def _parted(limits: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Return thresholds of both sides, which meet if these overlap, and the score between them."""
    low, high = limits["release"], limits["reject"]
    if low > high:
        return dict(limits), high
    cut = (low + high) / 2
    return {"reject": cut, "release": float(np.nextafter(cut, np.inf))}, cut


def _even_score(history: History | None) -> float:
    """Return the largest score up to which a success is no likelier than a failure."""
    assert history is not None
    curve = RiskCurve.fit("reject", history.scores, (history.outcomes == 1).astype(np.int64))
    below = curve.scores[curve.errors <= 0.5]
    return float(below.max() if below.size else history.scores.min())


@dataclass(frozen=True, eq=False)
class _Asked:
    """The settings to plan one side by."""

    side: str
    alpha: float
    delta: float
    history: History | None

    def plan(self, batch: Batch, threshold: float | None = None) -> SidePlan | None:
        """Plan the set of one threshold, or the best chain; None where none is worth a label."""
        sign = 1.0 if self.side == "reject" else -1.0
        # ascending: the surest first
        scores = np.sort(sign * batch.scores[np.isfinite(batch.scores)])
        if threshold is None:
            if not scores.size:
                return None
            shares = np.arange(1, _CANDIDATES + 1) / _CANDIDATES
            ends = np.ceil(shares * scores.size).astype(np.int64)
            limits = np.unique(scores[ends[ends >= min(_FEWEST, scores.size)] - 1])
        else:
            limits = np.array([sign * threshold])
        sizes = np.searchsorted(scores, limits, side="right")
        if threshold is not None and not sizes[0]:
            raise InputError(
                f"No run of this batch is decided at the threshold {threshold:g}. Give another one."
            )
        weights, errors = self._predicted(sign * scores)
        means = np.cumsum(errors, axis=1)[:, sizes - 1] / sizes
        means = np.clip(means, _SURE, 1 - _SURE).round(6)
        tables = [set_table(size, self.alpha, self.delta) for size in sizes.tolist()]
        chain = [0] if threshold is not None else _best_chain(tables, weights, means)
        if not chain:
            return None
        means = means[:, chain]
        first = chain_stopping([tables[place] for place in chain], weights, means)[0]
        return SidePlan.model_validate(
            {
                "side": self.side,
                "alpha": self.alpha,
                "delta": self.delta,
                "thresholds": tuple((sign * limits[chain]).tolist()),
                "weights": tuple(weights.tolist()),
                "means": tuple(map(tuple, means.tolist())),
                "expected_labels": round(first.labels, 3),
                "expected_net_share": round(first.value / len(batch), 6),
            }
        )

    def _predicted(self, scores: Floats) -> tuple[Floats, Floats]:
        """Return the weights of the predictions, and the errors of each at scores."""
        if self.history is None:
            errors = np.tile(self.alpha * np.array([_UNKNOWN]).T, scores.size)
            return np.full(len(_UNKNOWN), round(1 / len(_UNKNOWN), 6)), errors
        wrong = (self.history.outcomes == int(self.side == "reject")).astype(np.int64)
        risk = RiskCurve.fit(self.side, self.history.scores, wrong).at(scores)
        nodes, chances = np.polynomial.hermite_e.hermegauss(_NODES)
        odds = risk / (1 - risk) * np.exp(nodes)[:, None]
        return (chances / chances.sum()).round(6), odds / (1 + odds)


def _best_chain(tables: Sequence[SetTable], weights: Floats, means: Floats) -> list[int]:
    """Return the places of the sets of the best chain, empty where none is worth a label."""
    sizes = np.array([table.runs for table in tables])
    # the set after each; one beyond the last where there is none
    following = np.searchsorted(sizes, _RATIO * sizes).tolist()
    # what a set and all after it are worth, by the set before it and the set
    worth: dict[tuple[int | None, int], Stopping] = {}
    for place in reversed(range(len(tables))):
        later = worth.get((place, following[place]))
        for before in (None, *(one for one in range(place) if following[one] == place)):
            strict = None if before is None else tables[before]
            worth[before, place] = stopping(
                tables[place], weights, means[:, place], strict=strict, after=later
            )
    before, place = max((key for key in worth if key[0] is None), key=lambda key: worth[key].value)
    chain: list[int] = []
    while (before, place) in worth and worth[before, place].value > 0:
        chain.append(place)
        before, place = place, following[place]
    return chain
