"""The batch certificate: a risk-limiting audit of one finite batch, by labels drawn from it.

Of N runs that a threshold decides, a random draw without replacement is labelled until the
hypothesis "at least K₀ = ⌊αN⌋ + 1 of them are wrong" is rejected at δ. The only randomness is the
draw, so the promise holds for any batch: new agents, drift, clustered or hostile runs.

Uniform draws are tested by the prior-posterior ratio. With a beta-binomial(N; a, b) prior over the
number of errors, the predictive probability of k errors in n draws is B(a+k, b+n−k)/B(a, b), and

    e_n = [B(a+k, b+n−k) / B(a, b)] / [(K₀)_k (N−K₀)_{n−k} / (N)_n]

is an e-process under K₀ errors, and under more while kN/n < K₀. Weighted draws (successive
sampling, probability wᵢ/W of what remains) are tested by betting: with m = K₀ − k errors at least
remaining under the hypothesis, 1 + λ(m − x·W/w) has expectation at most 1 for every predictable
0 ≤ λ ≤ 1/(W/min w − m).

Nested sets share one draw of the widest: restricted to a nested set it is a draw of it. They are
tested together by closure: a mean of e-processes is one, so a set is certified once, for every
group of sets that it is in, the mean of their e-processes has reached 1/δ. The probability that
any certified set is above its budget is at most δ.

References
----------
Waudby-Smith and Ramdas (2020), Confidence sequences for sampling without replacement.
Waudby-Smith, Stark and Ramdas (2021), RiLACS: risk limiting audits via confidence sequences.
Shekhar, Xu, Lipton, Liang and Ramdas (2023), Risk-limiting financial audits via weighted sampling
without replacement.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.counts import SIDES, covers
from certify_assets.certificates.wealth import weighted_wealth
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes

SCHEMA: Final = "certify_assets/batch_plan/2"
#: weight of the prior in draws
STRENGTH: Final = 20.0
_LARGEST_LOG = math.log(1e15)
# closure looks at every group of sets
_MOST_SETS = 8
# a run that history calls safe may still be wrong, and is drawn at least so often
_SMALLEST_RISK = 0.05

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SequentialTest:
    """The test of one set after the labels so far.

    Attributes
    ----------
    certified : bool
        Whether the hypothesis of too many errors was rejected, at these labels or earlier.
    failed : bool
        Whether the errors found exceed the budget already, so that it never can be.
    labels : int
        Labels at which it was certified or failed, else all of them.
    errors : int
        Errors among these.
    e_value : float
        Largest value of the e-process, at most 10¹⁵; certified at 1/δ.
    """

    certified: bool
    failed: bool
    labels: int
    errors: int
    e_value: float


def error_limit(alpha: float, decided: int) -> int:
    """Return K₀, the smallest number of errors that exceeds the budget; exact in α's decimals."""
    budget = Fraction(str(alpha))
    return budget.numerator * decided // budget.denominator + 1


def uniform_test(
    errors: ArrayLike,
    decided: int,
    *,
    alpha: float,
    delta: float,
    predicted_error: float,
    strength: float = STRENGTH,
) -> SequentialTest:
    """Test a set by labels drawn uniformly without replacement.

    Parameters
    ----------
    errors : array_like of 0 and 1, shape (labels,)
        Whether each drawn run was decided wrongly, in the order of drawing.
    decided : int
        Runs in the set.
    alpha, delta : float
        Error budget and risk limit.
    predicted_error : float
        Mean of the prior; it moves the number of labels, never the validity.
    strength : float
        Weight of the prior in draws.

    Returns
    -------
    SequentialTest
    """
    found = np.asarray(errors, dtype=np.int64).reshape(-1)
    log_e = log_prior_posterior(found[None], decided, alpha, predicted_error, strength)[0]
    return _first(found, log_e, error_limit(alpha, decided), delta)


def weighted_test(
    errors: ArrayLike,
    drawn: ArrayLike,
    weights: ArrayLike,
    risks: ArrayLike,
    *,
    alpha: float,
    delta: float,
    strength: float = STRENGTH,
) -> SequentialTest:
    """Test a set by labels drawn with probability proportional to a weight, without replacement.

    Parameters
    ----------
    errors : array_like of 0 and 1, shape (labels,)
        In the order of drawing.
    drawn : array_like of int, shape (labels,)
        Places of the drawn runs in the set.
    weights, risks : array_like of float, shape (decided,)
        Weight and predicted error of every run of the set, fixed before the draw; weights > 0.
    alpha, delta, strength : float
        As for `uniform_test`.

    Returns
    -------
    SequentialTest
    """
    found = np.asarray(errors, dtype=np.int64).reshape(-1)
    every = np.asarray(weights, dtype=np.float64)
    if not (every > 0).all():
        raise InputError("A weight of the draw is not positive; every run needs a chance.")
    chances = np.asarray(risks, dtype=np.float64)
    limit = error_limit(alpha, every.size)
    strength = max(strength * float(chances.mean()), 1e-3)
    places = np.asarray(drawn, dtype=np.int64).reshape(-1)
    log_e = weighted_wealth(found, places, every, chances, limit=limit, strength=strength)
    return _first(found, log_e, limit, delta)


def log_prior_posterior(
    errors: NDArray[np.int64], decided: int, alpha: float, mean: float, strength: float
) -> _Floats:
    """Logarithm of the e-process at every label; +inf where too many errors are impossible."""
    drawn = np.arange(1, errors.shape[1] + 1)
    wrong = np.cumsum(errors, axis=1)
    return log_e_at(wrong, drawn, decided, alpha=alpha, mean=mean, strength=strength)


def log_e_at(
    wrong: NDArray[np.int64],
    drawn: NDArray[np.int64],
    decided: int,
    *,
    alpha: float,
    mean: float,
    strength: float,
) -> _Floats:
    """As `log_prior_posterior`, after numbers of labels and the errors among them."""
    from scipy.special import betaln, gammaln

    limit = error_limit(alpha, decided)
    mean = min(max(mean, 1e-4), 1 - 1e-4)
    a, b = strength * mean, strength * (1 - mean)
    right = drawn - wrong
    possible = (right <= decided - limit) & (wrong <= limit)
    k, r = np.where(possible, wrong, 0), np.where(possible, right, 0)
    n = np.where(possible, drawn, 0)
    sampling = (
        gammaln(limit + 1)
        - gammaln(limit - k + 1)
        + gammaln(decided - limit + 1)
        - gammaln(decided - limit - r + 1)
        - (gammaln(decided + 1) - gammaln(decided - n + 1))
    )
    ratio = betaln(a + k, b + r) - betaln(a, b) - sampling
    log_e = np.where(possible, ratio, np.inf)
    # more errors than K₀ are likelier than K₀ where the share found is above K₀/N
    log_e[wrong * decided >= limit * drawn] = -np.inf
    return log_e


def _first(errors: NDArray[np.int64], log_e: _Floats, limit: int, delta: float) -> SequentialTest:
    wrong = np.cumsum(errors)
    over = np.flatnonzero(wrong >= limit)
    end = int(over[0]) if over.size else errors.size
    passed = np.flatnonzero(log_e[:end] >= math.log(1 / delta))
    certified = bool(passed.size)
    labels = int(passed[0]) + 1 if certified else min(end + 1, errors.size)
    largest = float(log_e[: int(passed[0]) + 1 if certified else end].max(initial=-np.inf))
    return SequentialTest(
        certified=certified,
        failed=bool(over.size) and not certified,
        labels=labels,
        errors=int(wrong[labels - 1]) if labels else 0,
        e_value=math.exp(min(largest, _LARGEST_LOG)),
    )


@dataclass(frozen=True)
class Batch:
    """The runs of a finite batch, frozen before anything is drawn.

    Parameters
    ----------
    trajectories, tasks : sequence of str
        Every trajectory once.
    scores : array_like of float
        NaN where unscored: such runs are in no set.
    """

    trajectories: tuple[str, ...]
    tasks: tuple[str, ...]
    scores: _Floats

    @classmethod
    def of(cls, trajectories: Sequence[str], tasks: Sequence[str], scores: ArrayLike) -> Batch:
        """Order the runs by their ids, so that the order of a file decides nothing."""
        values = np.asarray(scores, dtype=np.float64)
        order = sorted(range(len(trajectories)), key=lambda place: str(trajectories[place]))
        return cls(
            tuple(str(trajectories[place]) for place in order),
            tuple(str(tasks[place]) for place in order),
            values[order],
        )

    def __len__(self) -> int:
        return len(self.trajectories)

    @property
    def runs(self) -> list[tuple[str, str, float | None]]:
        """Id, task and score of every run, as hashes hold them."""
        scores = [None if math.isnan(score) else score for score in self.scores.tolist()]
        return list(zip(self.trajectories, self.tasks, scores, strict=True))

    def decided(self, side: str, threshold: float) -> NDArray[np.bool_]:
        """Return which runs a threshold decides."""
        return covers(side, threshold, self.scores)


@dataclass(frozen=True)
class RiskCurve:
    """Predicted error by score: steps of an isotonic regression on labelled runs of the past.

    Attributes
    ----------
    scores, errors : tuple of float
        Largest score of every step, ascending, and the error predicted up to it.
    """

    scores: tuple[float, ...]
    errors: tuple[float, ...]

    @classmethod
    def fit(cls, side: str, scores: _Floats, errors: NDArray[np.int64]) -> RiskCurve:
        """Fit the error of a side, which grows with the score on the reject side and falls on the
        release side, by pooling adjacent violators; half an error and half a run are added to
        every step.
        """
        order = np.argsort(scores, kind="stable")
        sign = 1.0 if side == "reject" else -1.0
        steps: list[list[float]] = []
        for place in order.tolist():
            steps.append([float(scores[place]), float(errors[place]), 1.0])
            while len(steps) > 1 and (
                sign * (steps[-2][1] / steps[-2][2]) >= sign * (steps[-1][1] / steps[-1][2])
                or steps[-2][0] == steps[-1][0]
            ):
                last = steps.pop()
                steps[-1] = [last[0], steps[-1][1] + last[1], steps[-1][2] + last[2]]
        return cls(
            tuple(step[0] for step in steps),
            tuple((step[1] + 0.5) / (step[2] + 1.0) for step in steps),
        )

    def at(self, scores: _Floats) -> _Floats:
        """Return the predicted error at scores; that of 0 where there is none."""
        places = np.searchsorted(np.array(self.scores), np.nan_to_num(scores), side="left")
        return np.array(self.errors)[np.minimum(places, len(self.errors) - 1)]

    def weights(self, scores: _Floats) -> tuple[_Floats, _Floats]:
        """Return the weight of every run in a draw, and its predicted error.

        The square root of the predicted error minimises the variance of the estimated total.
        """
        risks = self.at(scores)
        return np.sqrt(np.maximum(risks, _SMALLEST_RISK * float(risks.mean()))), risks


@dataclass(frozen=True)
class BatchPlan:
    """Everything that is fixed before a batch is drawn from.

    Attributes
    ----------
    side : {"reject", "release"}
    alpha, delta : float
    thresholds : tuple of float
        Nested candidate sets, the strictest first.
    predicted_errors : tuple of float
        Mean of the prior at each threshold.
    strength : float
        Weight of the prior in draws.
    risk : RiskCurve or None
        Draws are weighted by the square root of this predicted error; None draws uniformly.
    certificate_sha256, history_sha256 : str
        What the plan was made from; "" where there was none.
    expected_labels, expected_net_share : float or None
        Mean over simulated batches: labels until the end, and the share of the batch that is then
        decided without a label.
    """

    side: str
    alpha: float
    delta: float
    thresholds: tuple[float, ...]
    predicted_errors: tuple[float, ...]
    strength: float = STRENGTH
    risk: RiskCurve | None = None
    certificate_sha256: str = ""
    history_sha256: str = ""
    expected_labels: float | None = None
    expected_net_share: float | None = None

    def __post_init__(self) -> None:
        ordered = sorted(self.thresholds, reverse=self.side == "release")
        if self.side not in SIDES:
            raise InputError(f"There is no side {self.side!r}; name reject or release.")
        if not (0 < self.alpha < 1 and 0 < self.delta < 1):
            raise InputError(
                f"alpha is {self.alpha:g} and delta {self.delta:g}; both lie between 0 and 1."
            )
        if not self.thresholds or list(self.thresholds) != ordered:
            raise InputError("The thresholds of a batch plan are nested, the strictest first.")
        if len(self.thresholds) > _MOST_SETS:
            raise InputError(
                f"A batch plan has {len(self.thresholds)} thresholds; give at most {_MOST_SETS}."
            )
        if len(self.predicted_errors) != len(self.thresholds):
            raise InputError("A batch plan has one predicted error a threshold.")
        # the e-process is one for every prior, and for nothing that is no prior
        shares = [*self.predicted_errors, *(self.risk.errors if self.risk else ())]
        scores = [*self.thresholds, *(self.risk.scores if self.risk else ())]
        if not (
            all(0 <= share <= 1 for share in shares)
            and all(map(math.isfinite, scores))
            and 1e-3 <= self.strength <= 1e6
        ):
            raise InputError(
                "A batch plan has finite thresholds, predicted errors between 0 and 1, and a "
                "strength between .001 and a million; make the plan again."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        return {
            "schema": SCHEMA,
            **asdict(self),
            "thresholds": list(self.thresholds),
            "predicted_errors": list(self.predicted_errors),
            "risk": None
            if self.risk is None
            else [list(pair) for pair in zip(self.risk.scores, self.risk.errors, strict=True)],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> BatchPlan:
        """Read a plan from its JSON object.

        Raises
        ------
        InputError
            If it is not one.
        """
        try:
            values = {name: document[name] for name in cls.__dataclass_fields__}
            risk = values["risk"]
            values["risk"] = None if risk is None else _risk_curve(risk)
            for name in ("thresholds", "predicted_errors"):
                values[name] = _numbers(values[name])
            plan = cls(**values)
            known = (
                document["schema"] == SCHEMA
                and all(
                    value is None or (isinstance(value, (int, float)) and 0 <= value < math.inf)
                    for value in (plan.expected_labels, plan.expected_net_share)
                )
                and set(document) == {"schema", *values}
                and isinstance(plan.certificate_sha256, str)
                and isinstance(plan.history_sha256, str)
            )
        except (KeyError, TypeError, ValueError):
            known = False
        if not known:
            raise InputError("This is not a batch plan as `certify batch plan --out` writes it.")
        return plan

    def weights(self, scores: _Floats) -> tuple[_Floats, _Floats]:
        """Return the weight of every run in the draw, and its predicted error."""
        if self.risk is None:
            return np.ones(scores.size), np.full(scores.size, self.predicted_errors[-1])
        return self.risk.weights(scores)


def _risk_curve(steps: Sequence[tuple[float, float]]) -> RiskCurve:
    return RiskCurve(*map(_numbers, zip(*steps, strict=True)))


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


@dataclass(frozen=True, eq=False)
class BatchDraw:
    """The draw of a frozen batch under a plan: its order follows from the seed and the hash.

    Parameters
    ----------
    plan : BatchPlan
    batch : Batch
    seed : int
        Chosen by chance, after the batch was frozen.
    """

    plan: BatchPlan
    batch: Batch
    seed: int

    @cached_property
    def batch_sha256(self) -> str:
        """Hash of the plan and of every run with its score."""
        document = {"plan": self.plan.to_dict(), "runs": self.batch.runs}
        return sha256_bytes(canonical_json(document))

    @cached_property
    def levels(self) -> NDArray[np.int64]:
        """Place of the strictest threshold that decides each run; −1 where none does."""
        found = np.full(len(self.batch), -1, dtype=np.int64)
        for place in reversed(range(len(self.plan.thresholds))):
            found[self.batch.decided(self.plan.side, self.plan.thresholds[place])] = place
        return found

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Runs of the widest set in the order of drawing.

        Every run waits −log(U)/w with U from SHA-256 of seed, batch and run, and the shortest wait
        comes first: successive sampling, the same on every machine, and of every nested set.
        """
        inside = np.flatnonzero(self.levels >= 0)
        weights, _ = self.plan.weights(self.batch.scores)
        waits = [
            -math.log(_uniform(self.seed, self.batch_sha256, self.batch.trajectories[place]))
            / weights[place]
            for place in inside.tolist()
        ]
        return inside[np.argsort(np.array(waits), kind="stable")]

    def close(self, outcomes: Mapping[str, int]) -> BatchCertificate:
        """Certify the batch by the labels of the first drawn runs.

        Parameters
        ----------
        outcomes : mapping of str to int
            Outcome, 0 or 1, of drawn runs by trajectory: the first ones of the draw, all or none
            between them.

        Raises
        ------
        InputError
            If a run was labelled that was not drawn, or one before it was left out.
        """
        names = [self.batch.trajectories[place] for place in self.order.tolist()]
        if strange := sorted(set(outcomes) - set(names)):
            raise InputError(
                f"There is a label for {strange[0]!r}, which was not drawn ({len(strange)} such "
                "labels); label the runs of the draw, in its order."
            )
        labelled = len(outcomes)
        if missing := next((name for name in names[:labelled] if name not in outcomes), None):
            raise InputError(
                f"Run {missing!r} has no label and later ones have; label the runs in the order "
                "of the draw."
            )
        trace = self.trace([outcomes[name] for name in names[:labelled]])
        return BatchCertificate.of(self, trace)

    def trace(self, outcomes: Sequence[int]) -> Trace:
        """Test every set after every label, by the outcomes of the first drawn runs in order."""
        plan, drawn = self.plan, self.order[: len(outcomes)]
        wrong = np.asarray(outcomes, np.int64) == (1 if plan.side == "reject" else 0)
        inside = self.levels[drawn] <= np.arange(len(plan.thresholds))[:, None]
        own = np.cumsum(inside.astype(np.int64), axis=1)
        log_e = np.zeros(own.shape)
        for level, hit in enumerate(inside):
            # before the first label of a set its e-process is 1
            path = np.append(0.0, self._log_e(level, drawn[hit], wrong[hit].astype(np.int64)))
            log_e[level] = path[own[level]]
        members = self.levels >= 0
        sizes = np.array(
            [int((members & (self.levels <= level)).sum()) for level in range(len(inside))]
        )
        limits = np.array([error_limit(plan.alpha, int(size)) for size in sizes])
        found = np.cumsum((inside & wrong).astype(np.int64), axis=1)
        return Trace(sizes, limits, np.array(plan.predicted_errors), own, found, log_e, plan.delta)

    def _log_e(self, level: int, drawn: NDArray[np.int64], errors: NDArray[np.int64]) -> _Floats:
        plan = self.plan
        inside = (self.levels >= 0) & (self.levels <= level)
        decided = int(inside.sum())
        if plan.risk is None:
            mean = plan.predicted_errors[level]
            path = log_prior_posterior(errors[None], decided, plan.alpha, mean, plan.strength)
            return np.asarray(path[0])
        weights, risks = (values[inside] for values in plan.weights(self.batch.scores))
        limit = error_limit(plan.alpha, decided)
        strength = max(plan.strength * float(risks.mean()), 1e-3)
        places = (np.cumsum(inside) - 1)[drawn]
        return weighted_wealth(errors, places, weights, risks, limit=limit, strength=strength)


def _uniform(seed: int, batch: str, run: str) -> float:
    digest = hashlib.sha256(f"{seed}\0{batch}\0{run}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") + 0.5) / 2**64


@dataclass(frozen=True, eq=False)
class Trace:
    """Nested sets after every label: arrays of shape (..., sets, labels) or (..., sets).

    Parameters
    ----------
    sizes, limits, means : array of shape (sets,)
        Runs, smallest number of errors above the budget, and mean of the prior.
    own, wrong : int array of shape (..., sets, labels)
        Labels and errors of each set so far.
    log_e : float array of shape (..., sets, labels)
        Logarithm of its e-process.
    delta : float
    """

    sizes: NDArray[np.int64]
    limits: NDArray[np.int64]
    means: _Floats
    own: NDArray[np.int64]
    wrong: NDArray[np.int64]
    log_e: _Floats
    delta: float

    @cached_property
    def e_values(self) -> _Floats:
        """Return the e-processes, at most 10¹⁵."""
        values: _Floats = np.exp(np.minimum(self.log_e, _LARGEST_LOG))
        return values

    @cached_property
    def certified(self) -> NDArray[np.bool_]:
        """Return which sets are certified after each label.

        A set with more errors found than its budget allows is not, whatever was shown before.
        """
        sets = self.sizes.size
        passed = np.ones(self.log_e.shape, dtype=bool)
        for group in range(1, 2**sets):
            members = [place for place in range(sets) if group >> place & 1]
            mean = self.e_values[..., members, :].mean(axis=-2)
            reached = np.maximum.accumulate(mean >= 1 / self.delta, axis=-1)
            passed[..., members, :] &= reached[..., None, :]
        return passed & (self.wrong < self.limits[:, None])

    @cached_property
    def saved(self) -> NDArray[np.int64]:
        """Return the runs that the best certified set decides without a label."""
        free = np.where(self.certified, self.sizes[:, None] - self.own, 0)
        most: NDArray[np.int64] = free.max(axis=-2)
        return most

    @cached_property
    def worthwhile(self) -> NDArray[np.bool_]:
        """Return whether more labels are expected to save more.

        A set that is open needs about (log target − log e)/KL labels, with the divergence of the
        error that its labels and its prior predict from the budget.
        """
        budget = (self.limits / np.maximum(self.sizes, 1))[:, None]
        prior = np.minimum(self.means[:, None], 0.9 * budget)
        rate = (STRENGTH * prior + self.wrong) / (STRENGTH + self.own)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = rate * np.log(rate / budget) + (1 - rate) * np.log((1 - rate) / (1 - budget))
            lacking = np.where(self.certified, 0.0, np.maximum(1 / self.delta - self.e_values, 0))
            # other open sets weigh on the mean of every group that they share
            target = 1 / self.delta + lacking.sum(axis=-2, keepdims=True) - lacking
            needed = np.maximum(np.log(target) - self.log_e, 0) / gain
        possible = ~self.certified & (rate < budget) & (self.wrong < self.limits[:, None])
        expected = np.where(possible, self.sizes[:, None] - self.own - needed, -np.inf)
        better: NDArray[np.bool_] = expected.max(axis=-2) > self.saved
        return better

    @cached_property
    def stops(self) -> NDArray[np.int64]:
        """Return the labels after which to stop: something is saved and more would not save more,
        or no set can be certified any more.
        """
        hopeless = (self.wrong >= self.limits[:, None]).all(axis=-2)
        over = hopeless | ((self.saved > 0) & ~self.worthwhile)
        over[..., -1] = True
        return np.asarray(np.argmax(over, axis=-1) + 1)


@dataclass(frozen=True)
class BatchCertificate:
    """What the labels of a draw say of a batch.

    Attributes
    ----------
    certified : bool
        At most α of the decided runs are wrong, with confidence 1 − δ over the draw alone.
    side, alpha, delta
        As planned.
    runs : int
        Runs of the batch.
    decided : int
        Runs that the certified threshold decides, labelled ones included; 0 where none is.
    labels_used, errors_found : int
        Labels up to the one that settled it (all of them, while it is open), and errors among those
        of decided runs (among all of them, where nothing is certified).
    e_value : float
        Largest e-value of the certified set, else of the strictest.
    threshold : float or None
    status : {"certified", "open", "to_reviewers"}
        Open while labels may still certify a set.
    net_share : float
        Share of the batch that is decided without one of these labels.
    worth_more : bool
        Whether more labels are expected to save more: where certified, by a wider set.
    batch_sha256 : str
    seed : int
    plan_sha256 : str
    """

    certified: bool
    side: str
    alpha: float
    delta: float
    runs: int
    decided: int
    labels_used: int
    errors_found: int
    e_value: float
    threshold: float | None
    status: str
    net_share: float
    worth_more: bool
    batch_sha256: str
    seed: int
    plan_sha256: str

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as a JSON object."""
        return asdict(self)

    @classmethod
    def of(cls, draw: BatchDraw, trace: Trace) -> BatchCertificate:
        """Take the certified set that saved most when it was certified; later labels change no
        figure of it.
        """
        plan, labels = draw.plan, trace.own.shape[-1]
        saved, used = trace.sizes, labels
        usable: list[int] = []
        status = "open"
        if labels:
            first = trace.certified.argmax(axis=1)
            saved = trace.sizes - trace.own[np.arange(first.size), first]
            usable = np.flatnonzero(trace.certified[:, -1] & (trace.sizes > 0)).tolist()
            lost = np.asarray(np.all(trace.wrong >= trace.limits[:, None], axis=0))
        certified = bool(usable)
        level = max(usable, key=lambda place: (saved[place], place), default=0)
        if certified:
            status, used = "certified", int(first[level]) + 1
        elif labels and lost[-1]:
            status, used = "to_reviewers", int(lost.argmax()) + 1
        shown = level if certified else 0
        return cls(
            certified=certified,
            side=plan.side,
            alpha=plan.alpha,
            delta=plan.delta,
            runs=len(draw.batch),
            decided=int(trace.sizes[level]) if certified else 0,
            labels_used=used,
            errors_found=int(trace.wrong[level if certified else -1, used - 1]) if labels else 0,
            e_value=float(trace.e_values[shown].max(initial=0.0)) if labels else 1.0,
            threshold=plan.thresholds[level] if certified else None,
            status=status,
            net_share=int(saved[level]) / len(draw.batch) if certified else 0.0,
            worth_more=bool(trace.worthwhile[-1]) if labels else status == "open",
            batch_sha256=draw.batch_sha256,
            seed=draw.seed,
            plan_sha256=sha256_bytes(canonical_json(plan.to_dict())),
        )
