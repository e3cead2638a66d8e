"""What budgets assume of people."""

from typing import Final

#: minutes that a reviewer takes for one run, as in the paper's table of reviewer-hours
MINUTES_PER_RUN: Final = 6.0
