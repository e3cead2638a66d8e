"""How far reviewers agree: Cohen's kappa with its interval, and what each of them adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.procedures import clopper_pearson_upper
from certify_assets.operations.labels import Label

CONFIDENCE: Final = 0.95
_TAIL: Final = (1 - CONFIDENCE) / 2
DRAWS: Final = 2000
_SEED = 42
#: tasks below which a bootstrap over them is no interval
_FEWEST_TASKS = 10
#: share of draws that may have no kappa, since everything in them has one outcome
_UNDEFINED = 0.05
#: level at which two halves of a reviewer's labels differ
DRIFT_LEVEL: Final = 0.01


@dataclass(frozen=True)
class ReviewerFigures:
    """One reviewer: how often others differ, earlier and later, and how often they were right."""

    name: str
    labels: int
    shared: int  # pairs with another reviewer's label of the same run
    differing: int  # of these, pairs of two outcomes
    early_differing: int  # … in the first half of their shared runs, by time
    late_differing: int
    drift_p: float | None  # Fisher's exact test of the halves; None without shared pairs
    gold: int = 0  # runs of known outcome that they labelled
    gold_errors: int = 0
    # exact binomial interval of the share right; None without such runs
    gold_low: float | None = None
    gold_high: float | None = None

    @property
    def drifts(self) -> bool:
        """Whether the halves differ more than by chance."""
        return self.drift_p is not None and self.drift_p < DRIFT_LEVEL

    def gold_sentence(self) -> str:
        """Describe how often the reviewer was right on known runs; "" without such runs."""
        if self.gold_low is None or self.gold_high is None:
            return ""
        right = self.gold - self.gold_errors
        return (
            f"Reviewer {self.name}: {right} of {self.gold} known runs right "
            f"({right / self.gold:.0%},"
            f" {CONFIDENCE:.0%} interval {self.gold_low:.0%} to {self.gold_high:.0%})."
        )


@dataclass(frozen=True)
class Agreement:
    """Agreement on runs that two reviewers or more labelled."""

    runs: int
    tasks: int
    pairs: int  # pairs of labels of one run
    differing: int
    kappa: float | None  # None without pairs, and where all labels have one outcome
    low: float | None
    high: float | None
    reviewers: tuple[ReviewerFigures, ...] = ()

    def sentence(self) -> str:
        """Describe the agreement."""
        if not self.pairs:
            return "No run was labelled by two reviewers, so their agreement is not known."
        said = (
            f"Reviewers agree on {self.pairs - self.differing} of {self.pairs} pairs of labels "
            f"({self.runs} runs, {self.tasks} tasks)"
        )
        if self.kappa is None:
            return f"{said}; all labels have one outcome, so Cohen's kappa is not defined."
        if self.low is None or self.high is None:
            return f"{said}: Cohen's kappa {self.kappa:.2f}; too few tasks differ for an interval."
        return (
            f"{said}: Cohen's kappa {self.kappa:.2f} ({CONFIDENCE:.0%} interval {self.low:.2f} to "
            f"{self.high:.2f}, bootstrap over tasks)."
        )


class Said(NamedTuple):
    """The valid label of a reviewer on a run."""

    reviewer: str
    trajectory_id: str
    outcome: int
    time: str


def valid_labels(labels: Iterable[Label]) -> list[Said]:
    """Return the last statement of each reviewer on each run, those taken back left out."""
    last = {(label.reviewer, label.trajectory_id): label for label in labels}
    return [
        Said(*names, label.outcome, label.time)
        for names, label in last.items()
        if label.outcome is not None
    ]


def measure_agreement(
    labels: Iterable[Label],
    tasks: Mapping[str, str],
    *,
    gold: Sequence[tuple[Said, int]] = (),
    draws: int = DRAWS,
) -> Agreement:
    """Measure the agreement of reviewers; `tasks` by runs, `gold` with the known outcomes.

    With several pairs of reviewers kappa is pooled: one minus the sum of observed disagreements
    over the sum of those expected from each pair's own margins (de Vries et al. 2008, Field
    Methods 20). The interval is a percentile bootstrap over tasks, since attempts of one task are
    alike.
    """
    said = valid_labels(labels)
    by_run: dict[str, list[Said]] = {}
    for one in said:
        by_run.setdefault(one.trajectory_id, []).append(one)
    pairs = [
        (tasks.get(name, name), one, other)
        for name, those in by_run.items()
        # in the order of their names
        for one, other in combinations(sorted(those), 2)
    ]
    table = _table(pairs)
    total = table.sum(axis=0, keepdims=True)
    kappa = float(_kappas(total)[0])
    low, high = _interval(table, draws)
    return Agreement(
        runs=sum(len(those) > 1 for those in by_run.values()),
        tasks=len(table),
        pairs=len(pairs),
        differing=int(total[..., (1, 2)].sum()),
        kappa=None if np.isnan(kappa) else kappa,
        low=low,
        high=high,
        reviewers=_figures(said, [(one, other) for _, one, other in pairs], gold),
    )


def _table(pairs: Sequence[tuple[str, Said, Said]]) -> NDArray[np.float64]:
    """Count outcomes 00, 01, 10, 11 of each pair of reviewers in each task."""
    tasks = {task: row for row, task in enumerate(dict.fromkeys(task for task, *_ in pairs))}
    who = dict.fromkeys((one.reviewer, other.reviewer) for _, one, other in pairs)
    places = {names: column for column, names in enumerate(who)}
    counts = np.zeros((len(tasks), len(places), 4))
    for task, one, other in pairs:
        column = places[one.reviewer, other.reviewer]
        counts[tasks[task], column, 2 * one.outcome + other.outcome] += 1
    return counts


def _kappas(tables: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the pooled kappa of each table of pairs and outcomes; NaN where it has none."""
    size = tables.sum(axis=-1)
    first, second = tables[..., 2] + tables[..., 3], tables[..., 1] + tables[..., 3]
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = (first * (size - second) + (size - first) * second) / size
        observed = (tables[..., 1] + tables[..., 2]).sum(axis=-1)
        kappas: NDArray[np.float64] = 1.0 - observed / np.nansum(expected, axis=-1)
    return np.where(np.isfinite(kappas), kappas, np.nan)


def _interval(table: NDArray[np.float64], draws: int) -> tuple[float | None, float | None]:
    tasks = len(table)
    # where nobody differs every draw has kappa 1, which is no interval
    if tasks < _FEWEST_TASKS or not table[..., (1, 2)].any():
        return None, None
    weights = np.random.default_rng(_SEED).multinomial(tasks, np.full(tasks, 1 / tasks), size=draws)
    drawn = (weights @ table.reshape(tasks, -1)).reshape(draws, *table.shape[1:])
    kappas = _kappas(drawn)
    if np.isnan(kappas).mean() > _UNDEFINED:
        return None, None
    low, high = np.nanquantile(kappas, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def _figures(
    said: Sequence[Said], pairs: Sequence[tuple[Said, Said]], gold: Sequence[tuple[Said, int]]
) -> tuple[ReviewerFigures, ...]:
    met: dict[str, list[tuple[str, bool]]] = {}
    for one, other in pairs:
        for mine in (one, other):
            met.setdefault(mine.reviewer, []).append((mine.time, one.outcome != other.outcome))
    names = sorted({one.reviewer for one in said} | {one.reviewer for one, _ in gold})
    return tuple(_figure(name, said, sorted(met.get(name, ())), gold) for name in names)


def _figure(
    name: str,
    said: Sequence[Said],
    met: Sequence[tuple[str, bool]],
    gold: Sequence[tuple[Said, int]],
) -> ReviewerFigures:
    differs = [differing for _, differing in met]
    half = len(differs) // 2
    early, late = sum(differs[:half]), sum(differs[half:])
    known = [(one.outcome, outcome) for one, outcome in gold if one.reviewer == name]
    errors = sum(mine != outcome for mine, outcome in known)
    drift = None
    if half:
        from scipy.stats import fisher_exact

        halves = [[early, half - early], [late, len(differs) - half - late]]
        drift = float(fisher_exact(halves).pvalue)
    return ReviewerFigures(
        name,
        labels=sum(one.reviewer == name for one in said),
        shared=len(differs),
        differing=early + late,
        early_differing=early,
        late_differing=late,
        drift_p=drift,
        gold=len(known),
        gold_errors=errors,
        gold_low=1.0 - clopper_pearson_upper(errors, len(known), _TAIL) if known else None,
        gold_high=clopper_pearson_upper(len(known) - errors, len(known), _TAIL) if known else None,
    )
