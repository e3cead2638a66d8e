import math
from typing import Any

import pytest

from certify_assets.reports.wording import compact, count, log_odds, percent, rate, signed, small

THIN = "\N{NARROW NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.4321, "43.2"),
        (0.1, "10"),
        (0.0, "0"),
        (1.0, "100"),
        (0.0004, "0.0"),
        (0.9999, "100.0"),
        (0.125, "12.5"),
    ],
)
def test_a_share_is_a_percentage_and_rounding_stays_visible(share: float, text: str) -> None:
    assert percent(share) == f"{text}{THIN}%"


@pytest.mark.parametrize("write", [percent, count, rate, compact, small, signed, log_odds])
@pytest.mark.parametrize("absent", [None, math.nan])
def test_what_is_absent_is_a_dash(write: Any, absent: Any) -> None:
    assert write(absent) == "\N{EN DASH}"


def test_a_threshold_shows_log_odds_and_probability() -> None:
    assert log_odds(0.0) == "+0.000 (P = 0.500)"
    assert log_odds(-1.5) == "\N{MINUS SIGN}1.500 (P = 0.182)"
    # no overflow
    assert log_odds(-800.0).endswith("(P = 0.000)") and log_odds(800.0).endswith("(P = 1.000)")
    assert log_odds(0.25, "votes") == "0.25"


def test_tails_keep_their_order_of_magnitude() -> None:
    assert [small(v) for v in (0.0, 0.00125, 0.5, 3.2e-7)] == ["0", "0.00125", "0.5", "3.2×10⁻⁷"]
