"""Eq. 6 of the paper, the certifiability law: coverage = a·(1−π)(2A₀−1) + b."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.diagnosis import FEW_TASKS
from certify_assets.errors import InputError, quoted
from certify_assets.tables.cells import number_of
from certify_assets.tables.reading import read_table

_NEEDED, _OPTIONAL = ("success_rate", "auroc", "coverage"), ("n_eff", "tasks")
FEWEST_POINTS = 3
#: as many as the paper has
ENOUGH_POINTS = 7
_DROP = 0.1
_CONFIDENCE = 0.95
_Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LawPoint:
    """One corpus of the law; a number outside its range raises InputError."""

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
        for name in (*_NEEDED, *_OPTIONAL):
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            least, most = int(name == "tasks"), np.inf if name in _OPTIONAL else 1
            if not (np.isfinite(value) and least <= value <= most):
                bound = f"of at least {least}" if name in _OPTIONAL else "between 0 and 1"
                raise InputError(
                    f"{name} of corpus {quoted(self.corpus)} is {quoted(value)}; give a number "
                    f"{bound}."
                )

    @property
    def discrimination(self) -> float:
        """2A₀ − 1."""
        return 2 * self.auroc - 1

    @property
    def x(self) -> float:
        """The index (1−π)(2A₀−1)."""
        return (1 - self.success_rate) * self.discrimination if self.index is None else self.index

    @property
    def anchor(self) -> str:
        """Why this point is an anchor of the line: ``nothing certified``, ``few tasks`` or ""."""
        if self.coverage == 0:
            return "nothing certified"
        return "few tasks" if self.tasks is not None and self.tasks < FEW_TASKS else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the point with its index as plain values."""
        return {**asdict(self), "index": self.x, "anchor": self.anchor}


#: name → words, regressor of a point, saturation constants K to choose from (none where the form
#: has no such factor); s(K) = 1 − exp(−n_eff/K). The tuned grid is coarse enough not to fit seven
#: points with a third parameter.
LAW_FORMS: Final[dict[str, tuple[str, str, tuple[float, ...]]]] = {
    "law": ("(1−π)(2A₀−1)", "x", ()),
    "saturated": ("index·s(30)", "x", (30.0,)),
    "saturated_tuned": ("index·s(K), tuned", "x", tuple(map(float, range(5, 105, 5)))),
    "auroc_only": ("(2A₀−1)", "discrimination", ()),
    "auroc_saturated": ("(2A₀−1)·s(30)", "discrimination", (30.0,)),
    "parameter_free": ("index, not fitted", "x", ()),
}


@dataclass(frozen=True)
class FormFit:
    """One form fitted to one set of points; figures are None where it cannot be fitted."""

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
    """The influence of one point on the law: its leverage, and the law without it."""

    corpus: str
    # its coverage by the law without it
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

    @property
    def carriers(self) -> list[Influence]:
        """The points that determine the fit, by leverage or by loss of LOOCV R² without them."""
        least, heavy = (self.form("law").loocv_r2 or 0.0) - _DROP, 4 / len(self.points)
        return [
            item
            for item in self.influence
            if item.leverage > heavy
            or (item.loocv_r2_without is not None and item.loocv_r2_without < least)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return points, forms and influence as plain values."""
        return {**asdict(self), "points": [point.to_dict() for point in self.points]}


def fit_law(points: Sequence[LawPoint]) -> Law:
    """Fit every form of the law, with each corpus left out in turn (Table 8).

    Points must be at least three and differ.
    """
    x, y = np.array([point.x for point in points]), np.array([point.coverage for point in points])
    if problem := _problem(points, x, y):
        raise InputError(problem)
    slope, intercept = _line(x, y)
    squares = float(((y - intercept - slope * x) ** 2).sum())
    return Law(
        points=tuple(points),
        forms=tuple(_fit_form(name, points, y) for name in LAW_FORMS),
        influence=tuple(_influence(points, x, y)),
        deviation=float(np.sqrt(squares / (len(points) - 2))),
    )


def leave_one_out(x: _Floats, y: _Floats) -> _Floats:
    """Predict every point from the line fitted to the others."""
    slope, intercept = _line(x, y)
    prediction: _Floats = y - (y - intercept - slope * x) / (1 - _leverage(x))
    return prediction


def _problem(points: Sequence[LawPoint], x: _Floats, y: _Floats) -> str:
    """Return the reason why no line can be fitted, if there is one."""
    count = len(points)
    if count < FEWEST_POINTS:
        return f"the law cannot be fitted to {count} corpora; give at least {FEWEST_POINTS}."
    (name, often), *_ = Counter(point.corpus for point in points).most_common()
    if often > 1:
        return f"corpus {name!a} has two points of the law; give one row a corpus."
    if np.ptp(y) == 0:
        return (
            f"every one of the {count} corpora has coverage {y[0]:g}, so there is nothing to "
            "explain; give corpora that differ in column coverage."
        )
    if not _varies(x):
        return (
            f"all but one of the {count} corpora have one index (1−π)(2A₀−1), so no line can be "
            "validated; give corpora that differ in columns success_rate and auroc."
        )
    return ""


def _varies(x: _Floats) -> bool:
    """Whether a line can be fitted after leaving out any one point."""
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


def _fit_form(name: str, points: Sequence[LawPoint], y: _Floats) -> FormFit:
    words, regressor, scales = LAW_FORMS[name]
    x = np.array([getattr(point, regressor) for point in points])
    tried: list[tuple[float | None, _Floats]] = [(None, x)]
    if scales:
        missing = [point.corpus for point in points if point.n_eff is None]
        if missing:
            return FormFit(name, words, reason=f"n_eff of {missing[0]!a} is not known")
        sizes = np.array([point.n_eff for point in points], dtype=np.float64)
        tried = [(k, x * -np.expm1(-sizes / k)) for k in scales]
    usable = [(k, x) for k, x in tried if _varies(x)]
    if not usable:
        return FormFit(name, words, reason="the points do not differ in it")
    if name == "parameter_free":
        share = _explained(y, x)
        return FormFit(name, words, 1.0, 0.0, share, share, float(np.abs(y - x).mean()))
    # the first of equals: the smaller K
    k, x = max(usable, key=lambda pair: _explained(y, leave_one_out(pair[1], y)))
    slope, intercept = _line(x, y)
    left_out = leave_one_out(x, y)
    fitted, error = _explained(y, intercept + slope * x), float(np.abs(y - left_out).mean())
    return FormFit(name, words, slope, intercept, fitted, _explained(y, left_out), error, k)


def _influence(points: Sequence[LawPoint], x: _Floats, y: _Floats) -> Iterator[Influence]:
    left_out, leverage = leave_one_out(x, y), _leverage(x)
    for place, point in enumerate(points):
        others = np.delete(x, place), np.delete(y, place)
        judged = len(points) > FEWEST_POINTS and _varies(others[0]) and np.ptp(others[1]) > 0
        yield Influence(
            point.corpus,
            float(left_out[place]),
            float(leverage[place]),
            *_line(*others),
            _explained(others[1], leave_one_out(*others)) if judged else None,
        )


@dataclass(frozen=True)
class LawPrediction:
    """The law's prediction for a new corpus."""

    index: float
    # with its prediction interval, clipped to [0, ceiling]
    coverage: float
    low: float
    high: float
    # the index, clipped alike
    parameter_free: float
    # what no judge exceeds at this success rate: (1−π)/(1−α), up to 1
    ceiling: float
    # whether the index is outside the range of the points
    extrapolates: bool
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain values."""
        return {**asdict(self), "sentences": list(self.sentences)}


def prediction_band(law: Law, index: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the line and the half width of its 95 % prediction interval, neither clipped."""
    from scipy.special import stdtrit

    at, x = np.asarray(index, dtype=np.float64), np.array([point.x for point in law.points])
    spread = np.sqrt(1 + 1 / x.size + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    half = stdtrit(x.size - 2, (1 + _CONFIDENCE) / 2) * law.deviation * spread
    return law.intercept + law.slope * at, np.asarray(half, dtype=np.float64)


def predict_coverage(
    law: Law, *, success_rate: float, auroc: float, alpha: float = 0.1
) -> LawPrediction:
    """Predict the certified reject coverage of a corpus before any training (Eq. 6)."""
    point = LawPoint(corpus="the new corpus", success_rate=success_rate, auroc=auroc, coverage=0.0)
    line, half = (float(value) for value in prediction_band(law, point.x))
    ceiling = min(1.0, (1 - success_rate) / (1 - alpha))
    coverage, low, high, free = (
        min(max(value, 0.0), ceiling) for value in (line, line - half, line + half, point.x)
    )
    known = [item.x for item in law.points]
    outside = not min(known) <= point.x <= max(known)
    said = [
        f"The index is {point.x:.3f}. The law expects a coverage of {coverage:.3f} "
        f"({_CONFIDENCE:.0%} interval {low:.3f} to {high:.3f}), "
        f"the line without parameters {free:.3f}."
    ]
    if outside:
        said.append(
            f"That index is outside the range of the points, {min(known):.3f} to "
            f"{max(known):.3f}: this is an extrapolation."
        )
    if point.discrimination <= 0:
        said.append("The judge ranks no better than chance, so nothing can be expected of it.")
    said += [message for _, message in law_findings(law)]
    return LawPrediction(point.x, coverage, low, high, free, ceiling, outside, tuple(said))


def law_findings(law: Law) -> tuple[tuple[str, str], ...]:
    """Return findings for readers of the law, as (code, sentence)."""
    return tuple(_findings(law))


def _findings(law: Law) -> Iterator[tuple[str, str]]:
    count, whole, free = len(law.points), law.form("law"), law.form("parameter_free")
    few = "" if count >= ENOUGH_POINTS else f", fewer than the paper's {ENOUGH_POINTS}"
    said = f"The law is a line through {count} corpora{few}: a summary of them, not a theorem."
    yield "points", said
    for code, kind, words in (
        ("nothing_certified", "nothing certified", "nothing is certified on them"),
        ("few_tasks", "few tasks", f"they rest on fewer than {FEW_TASKS} tasks"),
    ):
        if names := [point.corpus for point in law.points if point.anchor == kind]:
            yield code, f"Anchors: {words} ({', '.join(names)})."
    loocv = whole.loocv_r2 or 0.0
    if loocv <= 0:
        words = "the mean of the corpora would have predicted better"
        yield "no_prediction", f"Leave-one-out R² is {loocv:.2f}: {words}."
    for item in law.carriers:
        rest = "."
        if item.loocv_r2_without is not None:
            rest = f" and its LOOCV R² {item.loocv_r2_without:.2f} instead of {loocv:.2f}."
        yield (
            "carries_the_fit",
            f"{item.corpus} carries the fit (leverage {item.leverage:.2f}). Without it the law is "
            f"{item.slope_without:.3f} x {item.intercept_without:+.3f}{rest}",
        )
    if free.mae is not None and whole.mae is not None:
        gain = "nothing" if free.mae <= whole.mae else "something"
        yield (
            "parameter_free",
            f"Fitting gains {gain}: the line without parameters has MAE {free.mae:.3f} on these "
            f"points, the fit {whole.mae:.3f} left out.",
        )


def read_points(path: Path) -> list[LawPoint]:
    """Read a table of points, one row each."""
    needed = ("corpus", *_NEEDED)
    table = read_table(path, {*needed, *_OPTIONAL})
    found = {name: table.values(name) for name in table.columns}
    if missing := [name for name in needed if name not in found]:
        raise InputError(
            f"{path} has no column {missing[0]!r}; it has {', '.join(map(quoted, table.names))}. "
            "Add it."
        )
    rows = (dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True))
    return [_point(f"{path}, {table.row(place)}", row) for place, row in enumerate(rows)]


def _point(where: str, row: Mapping[str, Any]) -> LawPoint:
    values: dict[str, Any] = {}
    for name in (*_NEEDED, *_OPTIONAL):
        number = number_of(row.get(name))
        if number is None:
            given = quoted(row[name])
            raise InputError(f"{where}, column {name!r} is {given}; give a number.")
        values[name] = None if np.isnan(number) and name in _OPTIONAL else number
    if (tasks := values["tasks"]) is not None:
        if not tasks.is_integer():
            raise InputError(f"{where}, column 'tasks' is {tasks:g}; give a whole number.")
        values["tasks"] = int(tasks)
    try:
        return LawPoint(corpus=str(row["corpus"] or "").strip(), **values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
