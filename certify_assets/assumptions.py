"""What certificates, budgets and pages assume of people, one setting for all of them."""

from __future__ import annotations

import math
import os
from typing import Final

from certify_assets.errors import InputError

#: name of the setting in the environment
MINUTES_VARIABLE: Final = "CERTIFY_MINUTES_PER_RUN"
#: of the paper's table of reviewer-hours
_MINUTES: Final = 6.0


def minutes_per_run() -> float:
    """Return the minutes that a reviewer takes for one run: CERTIFY_MINUTES_PER_RUN, else 6."""
    # an assumption about people, not a measurement, which every page with it states
    given = os.environ.get(MINUTES_VARIABLE, "").strip()
    try:
        minutes = float(given) if given else _MINUTES
    except ValueError:
        minutes = math.nan
    if not 0.0 < minutes < math.inf:
        raise InputError(
            f"{MINUTES_VARIABLE} is {given!r}; give the minutes that a reviewer takes for one run, "
            "a number above 0."
        )
    return minutes
