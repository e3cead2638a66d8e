"""Numbers that the paper prints, by table; what follows from them is in ``paper_facts``, what only a simulation shows in ``paper_trials``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CORPORA", "HARVESTS", "MAIN", "REAL_SCORES", "WEB_COVERAGES", "WEB_MINI", "Corpus"]


@dataclass(frozen=True)
class Corpus:
    """One row of the corpus table, with what the law is fitted on.

    Attributes
    ----------
    rows, tasks : int
        n and G of TEST.
    success_rate : float
        π.
    deff : float
        As printed, with one decimal.
    auroc : float
        A₀, of the base judge.
    index, best : float
        The point of the law's figure: (1 − π)(2A₀ − 1), and the best certified coverage at α = .1.
    """

    rows: int
    tasks: int
    success_rate: float
    deff: float
    auroc: float
    index: float
    best: float


CORPORA = {
    "Tool": Corpus(1280, 84, 0.48, 5.0, 0.798, 0.308, 0.321),
    "Term": Corpus(520, 13, 0.34, 17.6, 0.864, 0.482, 0.379),
    "Web-A": Corpus(200, 68, 0.26, 2.2, 0.897, 0.588, 0.585),
    "Web-M": Corpus(512, 32, 0.16, 13.0, 0.983, 0.809, 0.836),
    "Web-F": Corpus(256, 32, 0.26, 6.7, 0.983, 0.717, 0.758),
    "Code-O": Corpus(899, 382, 0.45, 2.0, 0.531, 0.034, 0.0),
    "Code-S": Corpus(21, 7, 0.24, 1.0, 0.913, 0.629, 0.619),
}
#: coverage at α = .1 by corpus and judge where TaskBoot's threshold comes from CAL (main table; Tool GRPO μ=3 from the table of all arms)
MAIN = {
    ("Tool", "base"): 0.0,
    ("Tool", "SFT"): 0.293,
    ("Tool", "GRPO"): 0.321,
    ("Term", "base"): 0.290,
    ("Term", "SFT"): 0.379,
    ("Term", "GRPO"): 0.369,
    ("Web-A", "base"): 0.510,
    ("Web-A", "SFT"): 0.560,
    ("Web-A", "GRPO"): 0.585,
    ("Web-M", "base"): 0.832,
    ("Web-M", "SFT"): 0.789,
    ("Web-F", "base"): 0.707,
    ("Web-F", "SFT"): 0.758,
    ("Code-O", "base"): 0.0,
    ("Code-S", "base"): 0.619,
}
#: TaskBoot's column of the appendix table of the five procedures, which runs them on the TEST scores themselves
REAL_SCORES = MAIN | {("Tool", "SFT"): 0.325, ("Term", "base"): 0.315}
#: certified coverages of the web corpora: budget → (corpus, coverage); α = .1 from the main table, .2 from the appendix
WEB_COVERAGES = {
    0.1: (
        *(("Web-A", share) for share in (0.510, 0.560, 0.585)),
        *(("Web-M", share) for share in (0.832, 0.789, 0.836)),
        *(("Web-F", share) for share in (0.707, 0.758, 0.758)),
    ),
    0.2: (
        *(("Web-A", share) for share in (0.635, 0.710, 0.735, 0.710, 0.715)),
        *(("Web-M", share) for share in (0.883, 0.859, 0.885)),
        *(("Web-F", share) for share in (0.707, 0.758, 0.758)),
    ),
}
#: (corpus and round, harvested rows, pool, contamination); the first calibrated its region on all of CAL
HARVESTS = (
    ("Web-A, full-CAL pilot", 437, 914, 0.041),
    ("Web-A, round 1", 262, 914, 0.008),
    ("Web-A, round 2", 336, 914, 0.024),
    ("Tool, round 1", 296, 2200, 0.000),
    ("Tool, round 2", 338, 2200, 0.003),
    ("Web-M, round 1", 837, 1296, 0.002),
)
#: Web-M: tasks, seeds and agents of its generation, and the rows of its harvest pool (SFT and RL splits)
WEB_MINI = {"tasks": 125, "seeds": 8, "agents": 2, "pool": 1296}
