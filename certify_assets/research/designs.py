"""Designs of the synthetic study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from certify_assets.errors import InputError, quoted
from certify_assets.research.populations import Clustered, Design, Fooled, effect_sd

_FEW = (20, 50, 100)
#: name → tasks and label ICCs of the study, and how it departs from the paper's process. The paper
#: leaves the base rate of the second open; its corpus has sixteen attempts at each task.
_CLUSTERED: dict[str, tuple[tuple[int, ...], tuple[float, ...], dict[str, Any]]] = {
    "paper": ((20, 50, 100, 500), (0.1, 0.5, 0.8), {}),
    "low_base_rate": ((32,), (0.8,), {"sizes": "sixteen", "base": -3.5, "separation": 4.5}),
    "size_outcome": ((50,), (0.5,), {"size_slope": 0.25}),
    "heavy_tails": ((50,), (0.5,), {"sizes": "pareto"}),
}
#: name → tasks of the study, and how tasks fool the judge that are not wrong throughout
_FOOLED: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "fooled": (_FEW, {}),
    "fooled_partly": (_FEW, {"error_icc": 0.7}),
    "fooled_larger": (_FEW, {"size_ratio": 3}),
    "fooled_scattered": (_FEW, {"error_icc": 0.3}),
    "fooled_largest": ((20, 50, 100, 200), {"size_ratio": 5}),
}
DESIGNS = (*_CLUSTERED, *_FOOLED)
#: true errors of fooled tasks over α; outside the group of failures the last one alone
EXCESSES = (1.02, 1.5)
#: what is run when nothing else is asked for
STUDY = DESIGNS[:7]
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
    """Return the cells of the study; without tasks or rhos, each design's defaults are used."""
    cells: list[Design] = []
    for name in dict.fromkeys(names):
        if name in _CLUSTERED:
            counts, own, departure = _CLUSTERED[name]
            for rho in rhos or own:
                effect_sd(rho)
            cells += [
                Clustered(name=name, tasks=count, rho=float(rho), **departure)
                for count in dict.fromkeys(tasks or counts)
                for rho in dict.fromkeys(rhos or own)
            ]
        elif name in _FOOLED:
            counts, departure = _FOOLED[name]
            cells += [
                Fooled(name=name, tasks=count, share=times * alpha, side=side, **departure)
                for count in dict.fromkeys(tasks or counts)
                for times in dict.fromkeys(excess)
            ]
        else:
            raise InputError(f"design is {quoted(name)}; give one of {', '.join(DESIGNS)}.")
    for cell in cells:
        if isinstance(cell, Fooled) and not 0 < cell.share < 1:
            raise InputError(
                f"The true error of fooled tasks is {cell.share:g}, excess times alpha; give an "
                "alpha below .66 and an excess above zero."
            )
    return cells
