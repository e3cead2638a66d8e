"""Designs of the synthetic study."""

from __future__ import annotations

from collections.abc import Sequence

from certify_assets.errors import InputError, quoted
from certify_assets.research.populations import Clustered, Design, Fooled, effect_sd

_FEW = (20, 50, 100)
#: name → what it is, and the tasks and label ICCs of the study
DESIGNS: dict[str, tuple[str, tuple[int, ...], tuple[float, ...]]] = {
    "paper": ("the process of the paper", (20, 50, 100, 500), (0.1, 0.5, 0.8)),
    "low_base_rate": ("(i) near-perfect judge, few successes, 16 attempts a task", (32,), (0.8,)),
    "size_outcome": ("(ii) larger tasks fail more", (50,), (0.5,)),
    "heavy_tails": ("(iii) heavy-tailed task sizes", (50,), (0.5,)),
    "fooled": ("a few tasks fool the judge throughout", _FEW, ()),
    "fooled_partly": ("errors of ICC .7 that the score cannot see", _FEW, ()),
    "fooled_larger": ("tasks that fool the judge are three times larger", _FEW, ()),
    "fooled_scattered": ("errors of ICC .3 that the score cannot see", _FEW, ()),
    "fooled_largest": ("tasks that fool the judge are five times larger", (20, 50, 100, 200), ()),
}
_ERROR_ICC = {"fooled_partly": 0.7, "fooled_scattered": 0.3}
_SIZE_RATIO = {"fooled_larger": 3, "fooled_largest": 5}
#: true errors of fooled tasks over α; outside the group of failures the last one alone
EXCESSES = (1.02, 1.5)
#: what is run when nothing else is asked for
STUDY = tuple(DESIGNS)[:7]
#: the designs in which TaskBoot fails
FAILURES = ("fooled_scattered", "fooled_partly", "fooled", "fooled_larger", "fooled_largest")
GROUPS = {"all": STUDY, "adversarial": STUDY[1:4], "fooled": STUDY[4:], "failure": FAILURES}


def study_designs(
    names: Sequence[str] = STUDY,
    *,
    tasks: Sequence[int] = (),
    rhos: Sequence[float] = (),
    alpha: float = 0.1,
    side: str = "reject",
    excess: Sequence[float] = EXCESSES[-1:],
) -> list[Design]:
    """Return the cells of the study; empty tasks and rhos mean each design's own."""
    cells: list[Design] = []
    for name in dict.fromkeys(names):
        if name not in DESIGNS:
            raise InputError(f"design is {quoted(name)}; give one of {', '.join(DESIGNS)}.")
        _, own_tasks, own_rhos = DESIGNS[name]
        for count in dict.fromkeys(tasks or own_tasks):
            if count < 2:
                raise InputError(f"tasks is {quoted(count)}; give at least 2 tasks.")
            if not own_rhos:
                cells.extend(
                    _fooled_design(name, int(count), times * alpha, side)
                    for times in dict.fromkeys(excess)
                )
            else:
                cells.extend(
                    _clustered_design(name, int(count), float(rho))
                    for rho in dict.fromkeys(rhos or own_rhos)
                )
    return cells


def _clustered_design(name: str, tasks: int, rho: float) -> Clustered:
    effect_sd(rho)
    if name == "low_base_rate":
        # the paper leaves the base rate open; its corpus has sixteen attempts at each task
        return Clustered(
            name=name, tasks=tasks, rho=rho, sizes="sixteen", base=-3.5, separation=4.5
        )
    if name == "size_outcome":
        return Clustered(name=name, tasks=tasks, rho=rho, size_slope=0.25)
    return Clustered(
        name=name, tasks=tasks, rho=rho, sizes="pareto" if name == "heavy_tails" else "poisson"
    )


def _fooled_design(name: str, tasks: int, share: float, side: str) -> Fooled:
    if not 0 < share < 1:
        raise InputError(
            f"The true error of fooled tasks is {share:g}, excess times alpha; give an alpha "
            f"below .66 and an excess above zero."
        )
    return Fooled(
        name=name,
        tasks=tasks,
        share=share,
        error_icc=_ERROR_ICC.get(name, 1.0),
        size_ratio=_SIZE_RATIO.get(name, 1),
        side=side,
    )
