"""The settings of a certificate: what is refused, and that one schema says it."""

from typing import Any

import numpy as np
import pytest

from certify_assets.certificates import Settings
from certify_assets.errors import InputError


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("alpha", 1.0, "give a number strictly between 0 and 1"),
        ("alpha", 0.12345, "four decimals"),
        ("delta", True, "give a number strictly between 0 and 1"),
        ("delta", float("nan"), "give a number strictly between 0 and 1"),
        ("engine", "quick", "give one of auto, montecarlo"),
        ("candidates", 1.5, "give a whole number"),
        ("side", "both", "give one of reject, release"),
        ("procedure", "wager", "give one of pseudo_task"),
        ("grid", 1001, "give a whole number from 1 to 1000"),
        ("seed", 1.5, "give a whole number from 0 to 9223372036854775807"),
        ("seed", "7", "give a whole number"),
        ("size_ratio", 0.5, "give a number from 1 to 1000000"),
        ("engine", "montecarlo", "does not apply to pseudo_task"),
        ("colour", 1, "is not a setting. Settings: alpha, delta"),
    ],
)
def test_a_wrong_setting_is_refused(name: str, value: Any, remedy: str) -> None:
    with pytest.raises(InputError, match=name) as refusal:
        Settings(**{name: value})
    assert remedy in str(refusal.value)


def test_numbers_of_numpy_are_numbers() -> None:
    asked = Settings(alpha=np.float64(0.2), grid=np.int64(7))
    assert asked == Settings(alpha=0.2, grid=7) and type(asked.grid) is int
    assert asked.replace(alpha=0.1).alpha == 0.1
