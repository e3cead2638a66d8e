"""Which judges the platform runs: one line each. Every judge gets the same chain of assets and the same certificates."""

from __future__ import annotations

from dataclasses import dataclass

from certify_assets.errors import InputError

__all__ = ["ALPHAS", "DELTA", "GRID", "JUDGES", "PROCEDURES", "SIDES", "JudgeSpec", "judge_spec"]

ALPHAS = (0.1, 0.2)
DELTA = 0.05
GRID = 40
SIDES = ("reject", "release")
# the first one decides; the others stand beside it on the page
PROCEDURES = ("guarded_taskboot", "taskboot", "naive")


@dataclass(frozen=True)
class JudgeSpec:
    """A judge and its candidates.

    Parameters
    ----------
    name : str
        Key prefix and group of its assets.
    success_weights : tuple of float
        Weights on successes in training. More than one: the weight is picked on CAL by certified coverage, and every certificate of
        this judge is computed at a level divided by their number.
    summary : str
        One sentence for the asset page.
    seed : int
        Seed of the training.
    """

    name: str
    success_weights: tuple[float, ...]
    summary: str
    seed: int = 42


JUDGES = {
    spec.name: spec
    for spec in (
        JudgeSpec("lexical", (1.0,), "TF-IDF and logistic regression, trained on the SFT split."),
        JudgeSpec(
            "lexical_weighted",
            (1.0, 3.0, 10.0, 30.0),
            "The lexical judge with a weight on successes, picked on CAL by certified reject coverage and paid for in the level.",
        ),
    )
}


def judge_spec(name: str) -> JudgeSpec:
    """Return a judge's specification.

    Raises
    ------
    InputError
        If there is no such judge; the sentence lists those that exist.
    """
    if name not in JUDGES:
        raise InputError(f"there is no judge {name!r}; name one of {', '.join(JUDGES)}.")
    return JUDGES[name]
