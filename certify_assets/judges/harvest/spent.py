"""What a certificate of a harvest judge says of itself: which rows it is of, and which labels no person gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["HALF_B", "describe_harvest"]

#: split in the provenance of a certificate of half B alone
HALF_B = "cal_half_b"


def describe_harvest(harvest: Mapping[str, Any]) -> str:
    """Name the pseudo-labels of an adapter document in one line."""
    return f"{harvest['size']} runs of RL were taken as failures on the word of {harvest['start']}, whose threshold half A of CAL certified"
