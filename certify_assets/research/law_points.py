"""Points of the certifiability law: what is known of a corpus before training, and what was certified on it; the paper's seven as a constant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from certify_assets.certificates.findings import FEW_TASKS
from certify_assets.errors import InputError, quoted

__all__ = ["PAPER_FACTS", "PAPER_FORMS", "PAPER_POINTS", "LawPoint"]


@dataclass(frozen=True, kw_only=True)
class LawPoint:
    """One corpus.

    Attributes
    ----------
    corpus : str
    success_rate : float
        π, in [0, 1].
    auroc : float
        A₀ of the judge that every corpus can be asked with, in [0, 1].
    coverage : float
        Best certified reject coverage, in [0, 1].
    n_eff : float or None
        Effective number of trajectories; the forms with a saturation factor need it of every point.
    tasks : int or None
    index : float or None
        (1−π)(2A₀−1) as published, where the published factors are rounded; None for the product.
    note : str
        What a reader should know of the point.

    Raises
    ------
    InputError
        If a number is outside its range; the sentence names corpus and column.
    """

    corpus: str
    success_rate: float
    auroc: float
    coverage: float
    n_eff: float | None = None
    tasks: int | None = None
    index: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not self.corpus:
            raise InputError("a point of the law has no corpus; name the corpus of every point.")
        for name in ("success_rate", "auroc", "coverage"):
            _require(self.corpus, name, getattr(self, name), 0.0, 1.0)
        for name, least in (("n_eff", 0.0), ("tasks", 1.0)):
            if getattr(self, name) is not None:
                _require(self.corpus, name, getattr(self, name), least, math.inf)
        if self.index is not None:
            _require(self.corpus, "index", self.index, -1.0, 1.0)

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
        """Why this point holds an end of the line rather than tests it: ``nothing certified``, ``few tasks``, or empty."""
        if self.coverage == 0:
            return "nothing certified"
        return "few tasks" if self.tasks is not None and self.tasks < FEW_TASKS else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the point with its index as plain values."""
        return {
            "corpus": self.corpus,
            "success_rate": self.success_rate,
            "auroc": self.auroc,
            "coverage": self.coverage,
            "n_eff": self.n_eff,
            "tasks": self.tasks,
            "index": self.x,
            "anchor": self.anchor,
            "note": self.note,
        }


def _require(corpus: str, name: str, value: object, least: float, most: float) -> None:
    # a bool is an int, and NaN fails every comparison
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not least <= value <= most
        or math.isinf(value)
    ):
        bound = (
            f"between {least:g} and {most:g}" if math.isfinite(most) else f"of at least {least:g}"
        )
        raise InputError(
            f"{name} of corpus {quoted(corpus)} is {quoted(value)}; give a number {bound}."
        )


def _paper(
    corpus: str,
    numbers: tuple[float, float, float, float],
    size: tuple[int, float, int],
    note: str = "",
) -> LawPoint:
    success_rate, auroc, index, coverage = numbers
    trajectories, deff, tasks = size
    return LawPoint(
        corpus=corpus,
        success_rate=success_rate,
        auroc=auroc,
        coverage=coverage,
        n_eff=trajectories / deff,
        tasks=tasks,
        index=index,
        note=note,
    )


#: (π, A₀, index, coverage), (n, DEFF, G): index and coverage from the figure of the model, A₀ from the main table, the rest from the table of corpora
PAPER_POINTS = (
    _paper(
        "Tool",
        (0.48, 0.798, 0.308, 0.321),
        (1280, 5.0, 84),
        "the coverage is that of the arm picked on TEST; picked on CAL it is .297",
    ),
    _paper(
        "Term",
        (0.34, 0.864, 0.482, 0.379),
        (520, 17.6, 13),
        "13 tasks, under the paper's own rule of 20",
    ),
    _paper("ARB", (0.26, 0.897, 0.588, 0.585), (200, 2.2, 68)),
    _paper("Web-M", (0.16, 0.983, 0.809, 0.836), (512, 13.0, 32)),
    _paper("Web-F", (0.26, 0.983, 0.717, 0.758), (256, 6.7, 32)),
    _paper(
        "Code-O",
        (0.45, 0.531, 0.034, 0.0),
        (899, 2.0, 382),
        "the judge is blind: nothing is certified",
    ),
    _paper(
        "Code-S",
        (0.24, 0.913, 0.629, 0.619),
        (21, 1.0, 7),
        "7 tasks, under the paper's own rule of 20",
    ),
)

#: the paper's table of forms: in-sample R², LOOCV R², LOOCV MAE; those it has no row for are missing
PAPER_FORMS: dict[str, tuple[float, float, float]] = {
    "law": (0.977, 0.964, 0.039),
    "saturated": (0.835, 0.707, 0.124),
    "saturated_tuned": (0.977, 0.967, 0.039),
    "auroc_only": (0.913, 0.471, 0.132),
    "auroc_saturated": (0.656, 0.382, 0.196),
}

#: what recomputing the paper's own numbers shows
PAPER_FACTS = (
    "Dropping (1−π) alone gives a LOOCV R² of .471; the .38 that the text quotes for it belongs to a form that carries the saturation factor as well.",
    "The parameter-free line coverage = (1−π)(2A₀−1) has R² .971 and MAE .033: the two fitted numbers add nothing that seven points could show.",
    "Without Code-O, which lies alone at the low end, the LOOCV R² is .81.",
    "K=10 is the best multiple of 5; over whole numbers K=8 is (LOOCV R² .968). Either was chosen by the figure that then praises it.",
    "The coverage .321 of Tool is that of the arm picked on TEST; with the one picked on CAL, .297, the fit hardly changes (LOOCV R² .964).",
)
