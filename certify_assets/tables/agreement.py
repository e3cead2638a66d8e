"""How far reviewers agree: Cohen's kappa with its interval, and what each of them adds to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.procedures import clopper_pearson_upper

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array

CONFIDENCE: Final = 0.95
_TAIL: Final = (1 - CONFIDENCE) / 2
DRAWS: Final = 2000
_SEED = 42
#: tasks below which a bootstrap over them is no interval
_FEWEST_TASKS = 10
#: share of draws that may have no kappa, since everything in them has one outcome
_UNDEFINED = 0.05
#: tasks or pairs of reviewers, times draws, that are in memory at the same time
_MOST_VALUES = 5_000_000


@dataclass(frozen=True)
class ReviewerFigures:
    """One reviewer: how often others differ, and how often they were right on known runs."""

    name: str
    labels: int
    shared: int  # pairs with another reviewer's label of the same run
    differing: int  # of these, pairs of two outcomes
    gold: int = 0  # runs of known outcome that they labelled
    gold_errors: int = 0
    # exact binomial interval of the share right; None without such runs
    gold_low: float | None = None
    gold_high: float | None = None

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


class ReviewerLabel(Protocol):
    """What a reviewer says of a run; no outcome takes back what was said before."""

    @property
    def reviewer(self) -> str:
        """The reviewer."""

    @property
    def trajectory_id(self) -> str:
        """The run."""

    @property
    def outcome(self) -> int | None:
        """The outcome of the run."""


class Said(NamedTuple):
    """The valid label of a reviewer on a run."""

    reviewer: str
    trajectory_id: str
    outcome: int


def valid_labels(labels: Iterable[ReviewerLabel]) -> list[Said]:
    """Return the last statement of each reviewer on each run, those taken back left out."""
    last = {(label.reviewer, label.trajectory_id): label.outcome for label in labels}
    return [Said(*names, outcome) for names, outcome in last.items() if outcome is not None]


def measure_agreement(
    labels: Iterable[ReviewerLabel],
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
    import pandas as pd

    said = pd.DataFrame(valid_labels(labels), columns=list(Said._fields))
    pairs = _pairs(said)
    counts = _counts(pairs, [tasks.get(name, name) for name in pairs["trajectory_id"]])
    kappa = float(_kappas(counts, np.ones((1, counts.shape[0])))[0])
    low, high = _interval(counts, draws)
    return Agreement(
        runs=pairs["trajectory_id"].nunique(),
        tasks=counts.shape[0],
        pairs=len(pairs),
        differing=int(pairs["differs"].sum()),
        kappa=None if np.isnan(kappa) else kappa,
        low=low,
        high=high,
        reviewers=_figures(said, pairs, gold),
    )


def _pairs(said: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of labels of one run, of reviewers in the order of their names."""
    runs = said.assign(place=said["trajectory_id"].factorize()[0])
    ordered = runs.sort_values(["place", "reviewer"])
    pairs = ordered.merge(ordered, on=["place", "trajectory_id"])
    pairs = pairs[pairs["reviewer_x"] < pairs["reviewer_y"]]
    return pairs.assign(differs=pairs["outcome_x"] != pairs["outcome_y"])


def _counts(pairs: pd.DataFrame, tasks: Sequence[str]) -> csr_array:
    """Count pairs of labels by task: those that differ, and three columns a pair of reviewers.

    The columns are their shared runs, successes of the first, and successes of the second.
    """
    import pandas as pd
    from scipy.sparse import csr_array

    rows, names = pd.factorize(np.array(tasks, object))
    who = pairs.groupby(["reviewer_x", "reviewer_y"], sort=False).ngroup().to_numpy()
    several = int(who.max(initial=-1)) + 1
    columns = np.concatenate([0 * who, 1 + who, 1 + several + who, 1 + 2 * several + who])
    values = [pairs["differs"], np.ones(len(pairs)), pairs["outcome_x"], pairs["outcome_y"]]
    data = np.concatenate(values).astype(np.float64)
    return csr_array((data, (np.tile(rows, 4), columns)), shape=(len(names), 1 + 3 * several))


def _kappas(counts: csr_array, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the pooled kappa where each task counts as often as a row of weights says."""
    sums = weights @ counts
    size, first, second = np.split(sums[:, 1:], 3, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = (first * (size - second) + (size - first) * second) / size
        kappas: NDArray[np.float64] = 1.0 - sums[:, 0] / np.nansum(expected, axis=1)
    return np.where(np.isfinite(kappas), kappas, np.nan)


def _interval(counts: csr_array, draws: int) -> tuple[float | None, float | None]:
    tasks = counts.shape[0]
    # where nobody differs every draw has kappa 1, which is no interval
    if tasks < _FEWEST_TASKS or not counts[:, [0]].sum():
        return None, None
    rng, share = np.random.default_rng(_SEED), np.full(tasks, 1 / tasks)
    most = max(1, _MOST_VALUES // max(counts.shape))
    sizes = [min(most, draws - start) for start in range(0, draws, most)]
    drawn = (rng.multinomial(tasks, share, size).astype(np.float64) for size in sizes)
    kappas = np.concatenate([_kappas(counts, weights) for weights in drawn])
    if np.isnan(kappas).mean() > _UNDEFINED:
        return None, None
    low, high = np.nanquantile(kappas, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def _figures(
    said: pd.DataFrame, pairs: pd.DataFrame, gold: Sequence[tuple[Said, int]]
) -> tuple[ReviewerFigures, ...]:
    # each pair is one of either reviewer
    names, differ = ["reviewer_x", "reviewer_y"], pairs.loc[pairs["differs"]]
    labels = Counter(said["reviewer"].tolist())
    shared = Counter(pairs[names].to_numpy().ravel().tolist())
    differing = Counter(differ[names].to_numpy().ravel().tolist())
    known = Counter(one.reviewer for one, _ in gold)
    errors = Counter(one.reviewer for one, outcome in gold if one.outcome != outcome)
    return tuple(
        ReviewerFigures(
            name,
            labels=labels[name],
            shared=shared[name],
            differing=differing[name],
            gold=known[name],
            gold_errors=errors[name],
            **_interval_right(known[name], errors[name]),
        )
        for name in sorted({*labels, *known})
    )


def _interval_right(known: int, errors: int) -> dict[str, float]:
    """Return the exact interval of the share right on known runs."""
    if not known:
        return {}
    return {
        "gold_low": 1.0 - clopper_pearson_upper(errors, known, _TAIL),
        "gold_high": clopper_pearson_upper(known - errors, known, _TAIL),
    }
