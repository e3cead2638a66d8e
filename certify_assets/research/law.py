"""The certifiability law: coverage = a·(1−π)(2A₀−1) + b, known before any training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.diagnosis import FEW_TASKS
from certify_assets.errors import InputError, quoted
from certify_assets.tables.reading import read_table
from certify_assets.tables.table import number_of

_NEEDED, _OPTIONAL = ("success_rate", "auroc", "coverage"), ("n_eff", "tasks")
_RANGES = {
    **dict.fromkeys(_NEEDED, (0.0, 1.0)),
    "n_eff": (0.0, 1e18),
    "tasks": (1, 1e18),
    "index": (-1.0, 1.0),
}


@dataclass(frozen=True, kw_only=True)
class LawPoint:
    """One corpus of the law; a number outside its range is an InputError."""

    corpus: str
    # π
    success_rate: float
    # A₀ of the judge that every corpus can be asked with
    auroc: float
    # best certified reject coverage
    coverage: float
    # effective trajectories; forms with a saturation factor need it of every point
    n_eff: float | None = None
    tasks: int | None = None
    # as published, where the published factors are rounded; None for the product
    index: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not self.corpus:
            raise InputError("a point of the law has no corpus; name the corpus of every point.")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name not in _NEEDED:
                continue
            if not isinstance(value, int | float) or not least <= value <= most:
                bound = f"of at least {least:g}" if most > 1 else f"between {least:g} and {most:g}"
                raise InputError(
                    f"{name} of corpus {quoted(self.corpus)} is {quoted(value)}; give a number "
                    f"{bound}."
                )

    @property
    def discrimination(self) -> float:
        """2A₀ − 1."""
        return 2 * self.auroc - 1

    @property
    def failures(self) -> float:
        """1 − π: what the reject side can decide at most, errors aside."""
        return 1 - self.success_rate

    @property
    def x(self) -> float:
        """The index (1−π)(2A₀−1)."""
        return self.failures * self.discrimination if self.index is None else self.index

    @property
    def anchor(self) -> str:
        """Why this point holds an end of the line: ``nothing certified``, ``few tasks`` or ""."""
        if self.coverage == 0:
            return "nothing certified"
        return "few tasks" if self.tasks is not None and self.tasks < FEW_TASKS else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the point with its index as plain values."""
        return {**asdict(self), "index": self.x, "anchor": self.anchor}


FEWEST_POINTS = 3
_SATURATION = 30.0
#: a grid coarse enough not to fit seven points with a third parameter
_TUNED = tuple(float(k) for k in range(5, 105, 5))
_Floats = NDArray[np.float64]
_Form = Callable[[LawPoint, float], float]


def _fill(point: LawPoint, scale: float) -> float:
    return float(-np.expm1(-(point.n_eff or 0.0) / scale))


#: name → words, regressor, saturation constants K to choose from (none where the form has no such
#: factor); index = (1−π)(2A₀−1),
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
    """One form on one set of points; None where it cannot be fitted."""

    form: str
    words: str
    slope: float | None = None
    intercept: float | None = None
    r2: float | None = None
    # 1 − SSE_loo/SST about the mean of all points; without parameters nothing is refitted,
    # so that both R² agree
    loocv_r2: float | None = None
    # of the left-out predictions
    mae: float | None = None
    # saturation constant
    k: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Influence:
    """What one point does to the law."""

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
    """The law over a set of corpora."""

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
    """Fit every form of the law, leave-one-corpus-out; points must be at least three and differ."""
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
    """Predict every point by the line through the others."""
    slope, intercept = _line(x, y)
    fitted = intercept + slope * x
    prediction: _Floats = y - (y - fitted) / (1 - _leverage(x))
    return prediction


def _require_fit(points: Sequence[LawPoint]) -> None:
    count = len(points)
    if count < FEWEST_POINTS:
        raise InputError(
            f"the law cannot be fitted to {count} corpora; give at least {FEWEST_POINTS}, one row "
            "each."
        )
    (name, often), *_ = Counter(point.corpus for point in points).most_common()
    if often > 1:
        raise InputError(f"corpus {name!a} has two points of the law; give one row a corpus.")
    if len({point.coverage for point in points}) == 1:
        raise InputError(
            f"every one of the {count} corpora has coverage {points[0].coverage:g}, so there is "
            f"nothing to explain; give corpora that differ in column coverage."
        )
    if not _varies(np.array([point.x for point in points])):
        raise InputError(
            f"all but one of the {count} corpora have one index (1−π)(2A₀−1), so no line can be "
            f"validated; give corpora that differ in columns success_rate and auroc."
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


#: as many as the paper has
ENOUGH_POINTS = 7
_DROP = 0.1
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class LawPrediction:
    """What the law expects of a new corpus."""

    index: float
    # with its prediction interval, clipped to [0, ceiling]
    coverage: float
    low: float
    high: float
    # the index, clipped alike
    parameter_free: float
    # what no judge exceeds at this success rate
    ceiling: float
    # whether the index is outside the range of the points
    extrapolates: bool
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain values."""
        return {**asdict(self), "sentences": list(self.sentences)}


def coverage_ceiling(success_rate: float, alpha: float = 0.1) -> float:
    """Return the largest share rejectable with an error of at most α: (1−π)/(1−α), up to 1."""
    return min(1.0, (1 - success_rate) / (1 - alpha))


def prediction_band(law: Law, index: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the line and the half width of its 95 % prediction interval, neither clipped."""
    from scipy.special import stdtrit

    at, x = np.asarray(index, dtype=np.float64), np.array([point.x for point in law.points])
    spread = np.sqrt(1 + 1 / x.size + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    half = stdtrit(x.size - 2, (1 + _CONFIDENCE) / 2) * law.deviation * spread
    return law.intercept + law.slope * at, np.asarray(half, dtype=np.float64)


def predict_coverage(
    law: Law,
    *,
    success_rate: float,
    auroc: float,
    n_eff: float | None = None,
    alpha: float = 0.1,
) -> LawPrediction:
    """Predict the certified reject coverage of a corpus that has not been trained on."""
    point = LawPoint(
        corpus="the new corpus", success_rate=success_rate, auroc=auroc, coverage=0.0, n_eff=n_eff
    )
    line, half = (float(value) for value in prediction_band(law, point.x))
    ceiling = coverage_ceiling(success_rate, alpha)
    coverage, low, high, free = (
        min(max(value, 0.0), ceiling) for value in (line, line - half, line + half, point.x)
    )
    known = [item.x for item in law.points]
    outside = not min(known) <= point.x <= max(known)
    said = [
        f"The index is {point.x:.3f}; the law expects a coverage of {coverage:.3f} "
        f"({_CONFIDENCE:.0%} interval {low:.3f} to {high:.3f}), "
        f"the line without parameters {free:.3f}."
    ]
    if outside:
        said.append(
            f"That index is outside the range of the points, {min(known):.3f} to "
            f"{max(known):.3f}: this is an extrapolation."
        )
    if point.discrimination <= 0:
        said.append(
            "The judge ranks no better than chance (AUROC at most .5), so nothing can be expected "
            "of it."
        )
    smallest = min((item.n_eff for item in law.points if item.n_eff is not None), default=0.0)
    if n_eff is not None and n_eff < smallest:
        said.append(
            f"n_eff {n_eff:.3g} is below that of every point ({smallest:.3g} at least); the law "
            "does not know of sample size."
        )
    said += [message for _, message in law_findings(law)]
    return LawPrediction(point.x, coverage, low, high, free, ceiling, outside, tuple(said))


def carriers(law: Law) -> tuple[Influence, ...]:
    """Return the points that carry the fit, by leverage or by the loss of LOOCV R² without them."""
    whole = law.form("law").loocv_r2 or 0.0
    return tuple(
        item
        for item in law.influence
        if item.leverage > 4 / len(law.points)
        or (item.loocv_r2_without is not None and item.loocv_r2_without < whole - _DROP)
    )


#: what a reader of the law should know
SENTENCES: Final = {
    "points": "The law is a line through {points} corpora{few}: an empirical summary of them, not "
    "a theorem.",
    "nothing_certified": "Anchors: nothing is certified on {number} of them ({names}).",
    "few_tasks": "Anchors: {number} of them rest on fewer than {least} tasks ({names}).",
    "no_prediction": "Leave-one-out R² is {loocv:.2f}: the mean of the corpora would have "
    "predicted better than this line.",
    "carries_the_fit": "{item.corpus} carries the fit (leverage {item.leverage:.2f}); without it "
    "the law is {item.slope_without:.3f} x {item.intercept_without:+.3f}{rest}",
    "parameter_free": "The line without parameters has R² {free.r2:.3f} and MAE {free.mae:.3f} on "
    "these points, the fit LOOCV R² {whole.loocv_r2:.3f} and MAE {whole.mae:.3f}: fitting gains "
    "{gain}.",
}


def law_findings(law: Law) -> tuple[tuple[str, str], ...]:
    """Return what a reader of the law should know, as (code, sentence)."""
    return tuple((code, SENTENCES[code].format(**fields)) for code, fields in _findings(law))


def _findings(law: Law) -> Iterator[tuple[str, dict[str, object]]]:
    count, whole, free = len(law.points), law.form("law"), law.form("parameter_free")
    few = "" if count >= ENOUGH_POINTS else f", fewer than the paper's {ENOUGH_POINTS}"
    yield "points", {"points": count, "few": few}
    for code, kind in (("nothing_certified", "nothing certified"), ("few_tasks", "few tasks")):
        if names := [point.corpus for point in law.points if point.anchor == kind]:
            yield code, {"number": len(names), "names": ", ".join(names), "least": FEW_TASKS}
    loocv = whole.loocv_r2 or 0.0
    if loocv <= 0:
        yield "no_prediction", {"loocv": loocv}
    for item in carriers(law):
        rest = "."
        if item.loocv_r2_without is not None:
            rest = f" and its LOOCV R² {item.loocv_r2_without:.2f} instead of {loocv:.2f}."
        yield "carries_the_fit", {"item": item, "rest": rest}
    if free.mae is not None and whole.mae is not None:
        gain = "nothing" if free.mae <= whole.mae else "something"
        yield "parameter_free", {"free": free, "whole": whole, "gain": gain}


def read_points(path: Path) -> list[LawPoint]:
    """Read a table of points, one row each."""
    needed = ("corpus", *_NEEDED)
    table = read_table(path, {*needed, *_OPTIONAL})
    found = {name: table.values(name) for name in table.columns}
    for name in needed:
        if name not in found:
            raise InputError(
                f"{path} has no column {name!r}; it has {', '.join(map(quoted, table.names))}. "
                "Add it."
            )
    return [
        _point(
            f"{path}, {table.rows.name(place)}",
            {name: values[place] for name, values in found.items()},
        )
        for place in range(len(found["corpus"]))
    ]


def _point(where: str, record: Mapping[str, Any]) -> LawPoint:
    values: dict[str, Any] = {}
    for name in (*_NEEDED, *_OPTIONAL):
        number = number_of(record.get(name))
        if number is None:
            given = quoted(record[name])
            raise InputError(f"{where}, column {name!r} is {given}; give a number.")
        values[name] = None if math.isnan(number) and name in _OPTIONAL else number
    if (tasks := values["tasks"]) is not None:
        if not tasks.is_integer():
            raise InputError(f"{where}, column 'tasks' is {tasks:g}; give a whole number.")
        values["tasks"] = int(tasks)
    try:
        return LawPoint(corpus=str(record["corpus"] or "").strip(), **values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
