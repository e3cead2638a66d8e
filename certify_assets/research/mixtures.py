"""Populations of several kinds of tasks: errors that come by task, hidden amid others or not.

Every kind has its own error rate, its own size and its own mean scores, so that wrong tasks can be
larger, scores can see some errors and not others, and the true error of a threshold is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.populations import Sample
from certify_assets.errors import InputError, quoted
from certify_assets.research.populations import draw_sizes, size_law

_THRESHOLDS = np.linspace(-8.0, 8.0, 321)
_BISECTIONS = 60


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of tasks; an error is a success on the reject side."""

    share: float  # of tasks
    error: float = 0.0  # mean error rate
    icc: float = 0.0  # of errors: at 1 a task is wrong throughout or not at all
    times: int = 1  # size over what the law of sizes draws
    error_score: float = 0.0  # mean score of errors, and of the other runs
    right_score: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Tasks of several kinds; a score is its run's mean, a task effect and unit noise, normal."""

    name: str
    tasks: int
    kinds: tuple[Kind, ...]
    sizes: str = "poisson"
    task_effect: float = 0.0  # standard deviation over tasks, independent of all else

    @property
    def rho(self) -> None:
        """No setting: the errors' ICC is part of the design."""
        return

    @property
    def cap(self) -> int:
        """Trajectories of the largest task."""
        return int(size_law(self.sizes)[0][-1]) * max(kind.times for kind in self.kinds)

    def draw(self, rng: np.random.Generator) -> Sample:
        """Draw a calibration set."""
        shares = np.array([kind.share for kind in self.kinds])
        which = rng.choice(len(self.kinds), size=self.tasks, p=shares / shares.sum())
        size = draw_sizes(self.sizes, self.tasks, rng)
        size = size * np.array([kind.times for kind in self.kinds])[which]
        rate = np.zeros(self.tasks)
        for place, kind in enumerate(self.kinds):
            mine = which == place
            rate[mine] = _rates(kind, int(mine.sum()), rng)
        owner = np.repeat(np.arange(self.tasks), size)
        wrong = rng.random(owner.size) < rate[owner]
        means = np.array([[kind.right_score, kind.error_score] for kind in self.kinds])
        effect = self.task_effect * rng.normal(size=self.tasks)
        scores = means[which[owner], wrong.astype(int)] + effect[owner]
        return Sample(scores + rng.normal(size=owner.size), wrong.astype(np.int64), owner)

    def true_error(
        self, thresholds: ArrayLike, side: str = "reject", estimand: str = "trajectory"
    ) -> NDArray[np.float64]:
        """Selective error of thresholds, over trajectories or with tasks weighing the same."""
        from scipy.special import ndtr

        sign = 1.0 if side == "reject" else -1.0
        at = np.asarray(thresholds, dtype=np.float64) / np.hypot(1.0, self.task_effect)
        ones, zeros = np.zeros(at.shape), np.zeros(at.shape)
        for kind in self.kinds:
            weight = kind.share * (kind.times if estimand == "trajectory" else 1)
            scale = np.hypot(1.0, self.task_effect)
            ones += weight * kind.error * ndtr(sign * (at - kind.error_score / scale))
            zeros += weight * (1 - kind.error) * ndtr(sign * (at - kind.right_score / scale))
        errors = ones if side == "reject" else zeros
        covered = ones + zeros
        return np.asarray(
            np.divide(errors, covered, out=np.zeros_like(covered), where=covered > 0),
            dtype=np.float64,
        )


def _rates(kind: Kind, tasks: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if not 0.0 < kind.error < 1.0 or kind.icc <= 0.0:
        return np.full(tasks, kind.error)
    if kind.icc >= 1.0:
        return (rng.random(tasks) < kind.error).astype(np.float64)
    spread = 1.0 / kind.icc - 1.0
    return rng.beta(kind.error * spread, (1.0 - kind.error) * spread, tasks)


#: wrong throughout, and never wrong
_WRONG, _RIGHT = Kind(share=0.0, error=1.0), Kind(share=1.0)
#: a tenth of the other runs are errors too, in all tasks alike, where the score is high
_BENIGN = Kind(share=1.0, error=0.1, error_score=2.5)
#: name → what it is, law of sizes, kinds (the first one's share is fitted), task effect of scores
MIXTURES: dict[str, tuple[str, str, tuple[Kind, ...], float]] = {
    "wrong_heavy_tails": ("wrong tasks, heavy-tailed sizes", "pareto", (_WRONG, _RIGHT), 0.0),
    "hidden_larger": (
        "wrong tasks 3 times larger amid errors that the score sees",
        "poisson",
        (replace(_WRONG, times=3), _BENIGN),
        0.0,
    ),
    "hidden_largest": (
        "wrong tasks 5 times larger amid errors that the score sees",
        "poisson",
        (replace(_WRONG, times=5), _BENIGN),
        0.0,
    ),
    "fresh_twice_heavy": (
        "wrong tasks twice as large, heavy-tailed sizes",
        "pareto",
        (replace(_WRONG, times=2), _RIGHT),
        0.0,
    ),
    "fresh_eightfold": (
        "wrong tasks 8 times larger",
        "poisson",
        (replace(_WRONG, times=8), _RIGHT),
        0.0,
    ),
    "fresh_smaller": (
        "wrong tasks a third as large as others",
        "poisson",
        (_WRONG, replace(_RIGHT, times=3)),
        0.0,
    ),
    "fresh_half_wrong": (
        "3 times larger tasks wrong in half of their runs",
        "poisson",
        (Kind(share=0.0, error=0.5, icc=0.3, times=3), _RIGHT),
        0.0,
    ),
    "fresh_geometric": ("wrong tasks, geometric sizes", "geometric", (_WRONG, _RIGHT), 0.0),
    "fresh_two_sizes": (
        "wrong tasks, of 2 or of 32 runs as others are",
        "two",
        (_WRONG, _RIGHT),
        0.0,
    ),
    "fresh_among_large": (
        "one run at most tasks, wrong ones among those of 20",
        "one",
        (replace(_WRONG, times=20), Kind(share=0.2, times=20), Kind(share=0.8)),
        0.0,
    ),
    "fresh_sixteen": (
        "16 attempts, errors of ICC .5",
        "sixteen",
        (Kind(share=0.0, error=0.4, icc=0.5), _RIGHT),
        0.0,
    ),
    "fresh_by_size": (
        "1 to 8 times larger tasks, wrong the more often the larger",
        "poisson",
        (
            replace(_WRONG, times=8),
            Kind(share=0.1, error=0.1, icc=1.0, times=4),
            Kind(share=0.3, error=0.05, icc=1.0, times=2),
            Kind(share=0.55, error=0.02, icc=1.0),
            Kind(share=0.05, times=8),
        ),
        0.0,
    ),
    "fresh_clustered_scores": (
        "wrong tasks 3 times larger, scores alike within tasks",
        "poisson",
        (replace(_WRONG, times=3), _RIGHT),
        2.0,
    ),
    "fresh_hidden_clustered": (
        "wrong tasks 3 times larger amid seen errors of ICC .3",
        "poisson",
        (replace(_WRONG, times=3), replace(_BENIGN, icc=0.3)),
        0.0,
    ),
    "fresh_hidden_heavy": (
        "wrong tasks twice as large amid seen errors, heavy-tailed sizes",
        "pareto",
        (replace(_WRONG, times=2), _BENIGN),
        0.0,
    ),
}


def mixture(name: str, tasks: int, least: float) -> Mixture:
    """Return a design whose true error is at least ``least`` at every threshold, and comes near."""
    if name not in MIXTURES:
        raise InputError(f"design is {quoted(name)}; give one of {', '.join(MIXTURES)}.")
    if not 0.0 < least < 1.0:
        raise InputError(f"The true error is {quoted(least)}; give one strictly between 0 and 1.")
    _, sizes, (first, *others), effect = MIXTURES[name]

    def of(share: float) -> Mixture:
        rest = sum(kind.share for kind in others)
        left = (replace(kind, share=kind.share / rest * (1.0 - share)) for kind in others)
        kinds = (replace(first, share=share), *left)
        return Mixture(name=name, tasks=tasks, kinds=kinds, sizes=sizes, task_effect=effect)

    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        enough = float(of(middle).true_error(_THRESHOLDS).min()) >= least
        low, high = (low, middle) if enough else (middle, high)
    return of(high)
