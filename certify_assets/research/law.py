r"""The certifiability law: what share a judge will be certified for, from two numbers known before any training.

.. math:: \widehat{\mathrm{coverage}} = a\,(1-\pi)(2A_0 - 1) + b

Fitted by least squares over corpora, validated leave-one-corpus-out, beside the forms that leave a factor out or add one, and beside the line
without parameters (a=1, b=0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.research.law_points import LawPoint

__all__ = ["FEWEST_POINTS", "LAW_FORMS", "FormFit", "Influence", "Law", "fit_law", "leave_one_out"]

FEWEST_POINTS = 3
_SATURATION = 30.0
#: a grid coarse enough not to fit seven points with a third parameter
_TUNED = tuple(float(k) for k in range(5, 105, 5))
_Floats = NDArray[np.float64]
_Form = Callable[[LawPoint, float], float]


def _fill(point: LawPoint, scale: float) -> float:
    return float(-np.expm1(-(point.n_eff or 0.0) / scale))


#: name → words, regressor, saturation constants K to choose from (none where the form has no such factor); index = (1−π)(2A₀−1),
#: s(K) = 1 − exp(−n_eff/K)
LAW_FORMS: dict[str, tuple[str, _Form, tuple[float, ...]]] = {
    "law": ("(1−π)(2A₀−1)", lambda point, _: point.x, ()),
    "saturated": ("index·s(30)", lambda point, k: point.x * _fill(point, k), (_SATURATION,)),
    "saturated_tuned": ("index·s(K), tuned", lambda point, k: point.x * _fill(point, k), _TUNED),
    "auroc_only": ("(2A₀−1)", lambda point, _: point.discrimination, ()),
    "failures_only": ("(1−π)", lambda point, _: point.failures, ()),
    "auroc_saturated": (
        "(2A₀−1)·s(30)",
        lambda point, k: point.discrimination * _fill(point, k),
        (_SATURATION,),
    ),
    "parameter_free": ("index, not fitted", lambda point, _: point.x, ()),
}


@dataclass(frozen=True)
class FormFit:
    """One form on one set of points.

    Attributes
    ----------
    form, words : str
        Key in ``LAW_FORMS`` and formula.
    slope, intercept : float or None
        a and b; None where the form cannot be fitted, and then ``reason`` says why.
    r2, loocv_r2, mae : float or None
        In-sample R²; 1 − SSE_loo/SST about the mean of all points; mean absolute error of the left-out predictions. Without parameters
        nothing is refitted, so leaving out changes nothing and both R² agree.
    k : float or None
        Saturation constant.
    reason : str
    """

    form: str
    words: str
    slope: float | None = None
    intercept: float | None = None
    r2: float | None = None
    loocv_r2: float | None = None
    mae: float | None = None
    k: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Influence:
    """What one point does to the law.

    Attributes
    ----------
    corpus : str
    index, coverage, fitted : float
    left_out : float
        Prediction of this point by the fit to the others.
    leverage : float
        In [1/n, 1]; they sum to 2.
    slope_without, intercept_without : float
    loocv_r2_without : float or None
        LOOCV R² of the law over the other points; None where they are too few or all alike.
    """

    corpus: str
    index: float
    coverage: float
    fitted: float
    left_out: float
    leverage: float
    slope_without: float
    intercept_without: float
    loocv_r2_without: float | None


@dataclass(frozen=True)
class Law:
    """The law over a set of corpora.

    Attributes
    ----------
    points : tuple of LawPoint
    forms : tuple of FormFit
        In the order of ``LAW_FORMS``.
    influence : tuple of Influence
        One a point.
    deviation : float
        Residual standard deviation of the law, n − 2 degrees of freedom.
    """

    points: tuple[LawPoint, ...]
    forms: tuple[FormFit, ...]
    influence: tuple[Influence, ...]
    deviation: float

    def form(self, name: str) -> FormFit:
        """Return one form's fit."""
        return next(fit for fit in self.forms if fit.form == name)

    @property
    def slope(self) -> float:
        """The law's a."""
        return float(self.form("law").slope or 0.0)

    @property
    def intercept(self) -> float:
        """The law's b."""
        return float(self.form("law").intercept or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return points, forms and influence as plain values."""
        return {
            "points": [point.to_dict() for point in self.points],
            "forms": [asdict(fit) for fit in self.forms],
            "influence": [asdict(item) for item in self.influence],
            "deviation": self.deviation,
        }


def fit_law(points: Sequence[LawPoint]) -> Law:
    """Fit every form of the law, leave-one-corpus-out.

    Parameters
    ----------
    points : sequence of LawPoint
        One a corpus, at least three, with at least two values of the index among any n − 1 of them.

    Returns
    -------
    Law

    Raises
    ------
    InputError
        If the points are too few, name a corpus twice, all have one coverage, or nearly all have one index.
    """
    _require_fit(points)
    x, y = np.array([point.x for point in points]), np.array([point.coverage for point in points])
    slope, intercept = _line(x, y)
    residuals = y - intercept - slope * x
    return Law(
        points=tuple(points),
        forms=tuple(_fit_form(name, points) for name in LAW_FORMS),
        influence=_influence(points, x, y),
        deviation=float(np.sqrt((residuals**2).sum() / (len(points) - 2))),
    )


def leave_one_out(x: _Floats, y: _Floats) -> _Floats:
    """Predict every point by the line through the others.

    Parameters
    ----------
    x, y : float64 array, shape (n,)
        n ≥ 3, at least two distinct x among any n − 1.

    Returns
    -------
    float64 array, shape (n,)

    Notes
    -----
    y_i − e_i/(1−h_i) with residual e and leverage h: the same numbers as n refits.
    """
    slope, intercept = _line(x, y)
    fitted = intercept + slope * x
    prediction: _Floats = y - (y - fitted) / (1 - _leverage(x))
    return prediction


def _require_fit(points: Sequence[LawPoint]) -> None:
    count = len(points)
    if count < FEWEST_POINTS:
        raise InputError(
            f"the law cannot be fitted to {count} corpora; give at least {FEWEST_POINTS}, one row each."
        )
    names = [point.corpus for point in points]
    if len(set(names)) < count:
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"corpus {repeated!a} has two points of the law; give one row a corpus.")
    if len({point.coverage for point in points}) == 1:
        raise InputError(
            f"every one of the {count} corpora has coverage {points[0].coverage:g}, so there is nothing to explain; "
            "give corpora that differ in column coverage."
        )
    if not _varies(np.array([point.x for point in points])):
        raise InputError(
            f"all but one of the {count} corpora have one index (1−π)(2A₀−1), so no line can be validated; "
            "give corpora that differ in columns success_rate and auroc."
        )


def _varies(x: _Floats) -> bool:
    """Whether a line can be fitted after any one point is left out."""
    return all(np.ptp(np.delete(x, place)) > 1e-12 for place in range(x.size))


def _line(x: _Floats, y: _Floats) -> tuple[float, float]:
    centred = x - x.mean()
    slope = float((centred * (y - y.mean())).sum() / (centred**2).sum())
    return slope, float(y.mean() - slope * x.mean())


def _leverage(x: _Floats) -> _Floats:
    centred = x - x.mean()
    leverage: _Floats = 1 / x.size + centred**2 / (centred**2).sum()
    return leverage


def _explained(y: _Floats, prediction: _Floats) -> float:
    return float(1 - ((y - prediction) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def _fit_form(name: str, points: Sequence[LawPoint]) -> FormFit:
    words, regressor, scales = LAW_FORMS[name]
    missing = [point.corpus for point in points if point.n_eff is None]
    if scales and missing:
        return FormFit(name, words, reason=f"n_eff of {missing[0]!a} is not known")
    y = np.array([point.coverage for point in points])
    tried = [
        (k, np.array([regressor(point, k or 1.0) for point in points])) for k in scales or (None,)
    ]
    usable = [(k, x) for k, x in tried if _varies(x)]
    if not usable:
        return FormFit(name, words, reason="the points do not differ in it")
    if name == "parameter_free":
        x = usable[0][1]
        share = _explained(y, x)
        return FormFit(name, words, 1.0, 0.0, share, share, float(np.abs(y - x).mean()))
    # the first of equals: the smaller K
    k, x = max(usable, key=lambda pair: _explained(y, leave_one_out(pair[1], y)))
    slope, intercept = _line(x, y)
    left_out = leave_one_out(x, y)
    return FormFit(
        name,
        words,
        slope=slope,
        intercept=intercept,
        r2=_explained(y, intercept + slope * x),
        loocv_r2=_explained(y, left_out),
        mae=float(np.abs(y - left_out).mean()),
        k=k,
    )


def _influence(points: Sequence[LawPoint], x: _Floats, y: _Floats) -> tuple[Influence, ...]:
    slope, intercept = _line(x, y)
    left_out, leverage = leave_one_out(x, y), _leverage(x)
    found = []
    for place, point in enumerate(points):
        others_x, others_y = np.delete(x, place), np.delete(y, place)
        judged = others_x.size >= FEWEST_POINTS and _varies(others_x) and np.ptp(others_y) > 0
        found.append(
            Influence(
                point.corpus,
                float(x[place]),
                float(y[place]),
                float(intercept + slope * x[place]),
                float(left_out[place]),
                float(leverage[place]),
                *_line(others_x, others_y),
                _explained(others_y, leave_one_out(others_x, others_y)) if judged else None,
            )
        )
    return tuple(found)
