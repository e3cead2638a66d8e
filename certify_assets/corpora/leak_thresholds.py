"""From which AUROC a control counts as a structural leak. Apart from the controls, so that a configuration is read without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certify_assets.errors import InputError

__all__ = ["THRESHOLDS", "complete_thresholds"]

THRESHOLDS: Mapping[str, float] = {"length": 0.85, "steps": 0.85, "agent": 0.85, "phrases": 0.85}


def complete_thresholds(given: Mapping[str, Any]) -> dict[str, float]:
    """Return a threshold for every control: the given ones, the others as in `THRESHOLDS`.

    Raises
    ------
    InputError
        If a name is no control, or a threshold is not above .5 and at most 1.
    """
    for name, value in given.items():
        if name not in THRESHOLDS:
            raise InputError(
                f"leak_thresholds names the control {name!r}; known are {', '.join(THRESHOLDS)}."
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 < value <= 1:
            raise InputError(
                f"the leak threshold of {name} is {value!r}; give an AUROC above .5 and at most 1."
            )
    return {name: float(given.get(name, default)) for name, default in THRESHOLDS.items()}
