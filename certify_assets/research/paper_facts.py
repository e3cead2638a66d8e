"""What the paper says of itself, measured again from the numbers that it prints.

Each fact holds a statement, what the paper says, what its own numbers give, and how that was computed. Facts that need a simulation are in
``paper_trials``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.clustering import n_min
from certify_assets.research.law import leave_one_out
from certify_assets.research.paper_numbers import (
    CORPORA,
    HARVESTS,
    MAIN,
    REAL_SCORES,
    WEB_COVERAGES,
    WEB_MINI,
)

__all__ = ["CONFIRMED", "PARTLY", "REFUTED", "Fact", "arithmetic_facts"]

#: what the measurement does to the statement
CONFIRMED, PARTLY, REFUTED = "confirmed", "in part", "not confirmed"
_LEVELS = np.linspace(0.02, 0.98, 40)
_SATURATION = 30.0
_FEWEST_TASKS = 20


@dataclass(frozen=True)
class Fact:
    """One statement about the paper, with its measurement.

    Attributes
    ----------
    key : str
    statement : str
        What is claimed of the paper.
    paper : str
        What the paper prints.
    measured : str
    how : str
    verdict : {"confirmed", "in part", "not confirmed"}
    values : mapping of str to float
        The measured numbers, by name; a simulated rate has its standard error under the same name with ``_se``.
    """

    key: str
    statement: str
    paper: str
    measured: str
    how: str
    verdict: str = CONFIRMED
    values: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fact as JSON values."""
        return {**self.__dict__, "values": dict(self.values)}


def arithmetic_facts() -> tuple[Fact, ...]:
    """Return the facts that follow from the paper's own numbers."""
    return (
        _without_success_rate(),
        _parameter_free(),
        _without_code(),
        _two_tables("Term", "base"),
        _two_tables("Tool", "SFT"),
        _tool_test(),
        _small_cal(),
        _start_of_self_training(),
        _harvests(),
        _web_grid(),
        _third_gate(),
    )


def _left_out(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """R² and mean absolute error of predicting each point by the line through the others; R² = 1 − SSE/SST about the mean of all."""
    predicted = leave_one_out(x, y)
    return _explained(predicted, y), float(np.abs(y - predicted).mean())


def _explained(predicted: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return 1.0 - float(np.square(y - predicted).sum() / np.square(y - y.mean()).sum())


def _column(name: str, without: Sequence[str] = ()) -> NDArray[np.float64]:
    return np.array(
        [getattr(corpus, name) for key, corpus in CORPORA.items() if key not in without],
        dtype=np.float64,
    )


def _without_success_rate() -> Fact:
    best, ranking = _column("best"), 2 * _column("auroc") - 1
    alone, _ = _left_out(ranking, best)
    saturated, _ = _left_out(
        ranking * (1 - np.exp(-_column("rows") / _column("deff") / _SATURATION)), best
    )
    return Fact(
        "loocv_without_success_rate",
        "Dropping (1 − π) alone does not give the quoted LOOCV R² of .38.",
        "LOOCV R² collapses to .38 without (1 − π); AUROC alone reaches .47",
        f"(2A₀ − 1) alone {alone:.3f}; with the saturation factor as well {saturated:.3f}. The two figures are given for one and the same step",
        "least squares on the seven points, one left out at a time",
        values={"alone": alone, "with_saturation": saturated},
    )


def _parameter_free() -> Fact:
    index, best = _column("index"), _column("best")
    fitted, fitted_error = _left_out(index, best)
    free, free_error = _explained(index, best), float(np.abs(best - index).mean())
    return Fact(
        "parameter_free_law",
        "The law without a fitted slope and intercept is no worse than the fitted one.",
        f"coverage = 1.08·(1 − π)(2A₀ − 1) − .05, LOOCV R² {fitted:.3f}, MAE {fitted_error:.3f}",
        f"coverage = (1 − π)(2A₀ − 1), nothing fitted: R² {free:.3f}, MAE {free_error:.3f}",
        "the seven points of the law's figure",
        values={
            "fitted": fitted,
            "fitted_error": fitted_error,
            "free": free,
            "free_error": free_error,
        },
    )


def _without_code() -> Fact:
    x, y = (_column(name, without=("Code-O",)) for name in ("index", "best"))
    rest, error = _left_out(x, y)
    return Fact(
        "law_without_code_o",
        "The law's R² rests on the one corpus that certifies nothing.",
        "LOOCV R² .96 on seven corpora; the zero-coverage corpus 'anchors the low end'",
        f"without Code-O LOOCV R² {rest:.2f}, MAE {error:.3f} on six",
        "least squares on six points, one left out at a time",
        values={"r2": rest, "error": error},
    )


def _two_tables(corpus: str, judge: str) -> Fact:
    key = (corpus, judge)
    certifying = [one for one in MAIN if MAIN[one]]
    equal = sum(MAIN[one] == REAL_SCORES[one] for one in certifying)
    return Fact(
        f"{corpus}_{judge}_twice".lower(),
        f"The certified coverage of {corpus} {judge} is printed with two values.",
        f"{MAIN[key]:.3f} in the main table, {REAL_SCORES[key]:.3f} in the table of the five procedures",
        f"apart by {abs(MAIN[key] - REAL_SCORES[key]):.3f}. The captions differ (threshold from CAL; TEST scores themselves), which would explain it, "
        f"but {equal} of the {len(certifying)} cells that certify agree to three digits in both",
        "the two tables side by side",
        values={
            "main": MAIN[key],
            "real": REAL_SCORES[key],
            "equal": equal,
            "cells": len(certifying),
        },
    )


def _tool_test() -> Fact:
    tasks, rows = 84 / 421, 1280 / 6400
    return Fact(
        "tool_test_share",
        "Tool's TEST split is larger than the stated rule.",
        "TEST holds 15 % of the tasks, 25 % on MiniWoB; Tool: 84 of 421 tasks, 1,280 of 6,400 runs",
        f"{100 * tasks:.1f} % of the tasks, {100 * rows:.1f} % of the runs",
        "84/421 and 1280/6400",
        values={"tasks": tasks, "rows": rows},
    )


def _small_cal() -> Fact:
    attempts = WEB_MINI["seeds"] * WEB_MINI["agents"]
    total, test = WEB_MINI["tasks"] * attempts, CORPORA["Web-M"].rows
    rows = total - test - WEB_MINI["pool"]
    tasks = rows / attempts
    return Fact(
        "web_m_cal_tasks",
        f"Web-M's CAL has fewer than {_FEWEST_TASKS} tasks, the paper's own limit for a certificate.",
        f"{WEB_MINI['tasks']} tasks, 8 seeds, 2 agents; TEST {test} runs, harvest pool (SFT and RL) {WEB_MINI['pool']} runs; rule: G ≥ {_FEWEST_TASKS}",
        f"CAL is {rows} runs of {tasks:g} tasks, and half of it ({tasks / 2:g}) calibrates the harvest",
        f"({total} − {test} − {WEB_MINI['pool']}) / {attempts}",
        values={"rows": rows, "tasks": tasks},
    )


def _start_of_self_training() -> Fact:
    return Fact(
        "self_training_start",
        "Self-training on Web-A starts at .575 in the table and at .560 in the text.",
        "table of self-training: transfer .575; text: 'no web data at all … certifies .560 … one round closes the gap'",
        "two judges: the appendix on transfer gives .575 to the one that saw other web corpora and .560 to the one that saw none. The gain of the "
        "round is .010 or .025, and which judge harvested is not said",
        "the three places side by side",
        values={"gain_from_table": 0.585 - 0.575, "gain_from_text": 0.585 - 0.560},
    )


def _harvests() -> Fact:
    split_cal = [share for name, _, _, share in HARVESTS if "pilot" not in name]
    return Fact(
        "six_harvests",
        "The 'six harvests' include the pilot that broke the split of CAL.",
        "contamination .000 to .041 across six harvests; 'all reported numbers use the split-CAL protocol'",
        f"{len(split_cal)} harvests follow the protocol, {min(split_cal):.3f} to {max(split_cal):.3f}; the .041 is the pilot's",
        "the table of all harvests without its pilot row",
        values={"harvests": len(split_cal), "largest": max(split_cal)},
    )


def _web_grid() -> Fact:
    """How many coverages are those of a quantile of TEST itself, as TaskBoot run on TEST gives and a threshold from CAL need not."""
    hits: dict[float, list[bool]] = {}
    chances: dict[float, list[float]] = {}
    for alpha, cells in WEB_COVERAGES.items():
        for corpus, coverage in cells:
            rows = CORPORA[corpus].rows
            covered = np.floor((rows - 1) * _LEVELS + 1e-9) + 1
            hits.setdefault(alpha, []).append(bool((np.round(covered / rows, 3) == coverage).any()))
            chances.setdefault(alpha, []).append(covered.size / rows)
    found = {alpha: sum(row) for alpha, row in hits.items()}
    p = _at_least(found[0.2], chances[0.2])
    return Fact(
        "web_coverages_on_test_grid",
        "Most web coverages are those of a quantile of TEST's own scores, not of a threshold from CAL.",
        "'threshold calibrated on CAL' in every table of coverage",
        f"α = .2: {found[0.2]} of {len(hits[0.2])} lie exactly on TEST's grid, {sum(chances[0.2]):.1f} expected by chance (P ≥ {found[0.2]}: {p:.1g}); "
        f"α = .1: {found[0.1]} of {len(hits[0.1])}, {sum(chances[0.1]):.1f} expected. Web-M is mostly off it, which ties or a threshold from CAL would explain",
        "covered rows of linspace(.02, .98, 40) quantiles on 200, 512 and 256 rows; chance: each number of rows equally "
        "likely, cells counted as independent though some repeat",
        values={
            "on_grid": found[0.2],
            "cells": len(hits[0.2]),
            "on_grid_at_.1": found[0.1],
            "cells_at_.1": len(hits[0.1]),
            "p": p,
        },
    )


def _at_least(hits: int, chances: Sequence[float]) -> float:
    """Probability of so many hits or more among independent trials."""
    law = np.array([1.0])
    for chance in chances:
        law = np.convolve(law, [1 - chance, chance])
    return float(law[hits:].sum())


def _third_gate() -> Fact:
    sizes = {name: CORPORA[name].rows / CORPORA[name].deff for name in ("Term", "Web-M", "Web-F")}
    limits = n_min(0.1, 0.05), n_min(0.1, 0.05 / 40)
    return Fact(
        "third_gate",
        "Term, said to fail the gate on effective samples, passes it where it is stated.",
        "n_eff ≳ 29 at α = .1, δ = .05; Term (n_eff 30) and Code-S (21) fail",
        f"Term {sizes['Term']:.1f} ≥ {limits[0]}; at δ/40, which each threshold has to meet, the limit is {limits[1]} and Web-M "
        f"({sizes['Web-M']:.0f}) and Web-F ({sizes['Web-F']:.0f}) fail as well",
        "rows / DEFF as printed; ⌈ln level / ln(1 − α)⌉",
        values={
            "term": sizes["Term"],
            "limit": limits[0],
            "limit_on_grid": limits[1],
            "zero_error": math.log(0.05) / math.log(0.9),
        },
    )
