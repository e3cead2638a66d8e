"""The report that an engine must pass before its scores may certify."""

import json

import numpy as np
import pytest

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.base import scores_from_log_odds
from certify_assets.judges.lm.parity import parity

LOG_ODDS = np.linspace(-3, 3, 40) + 0.01


def test_rounding_passes_and_an_equal_engine_is_equal() -> None:
    reference = scores_from_log_odds(LOG_ODDS)
    same = parity(reference, reference)
    assert same.passed and same.max_difference == 0 and same.rank_agreement == 1 and same.rows == 40
    noise = 1e-3 * np.where(np.arange(40) % 2, 1, -1)
    near = parity(reference, scores_from_log_odds(LOG_ODDS + noise))
    assert near.passed and near.max_difference == pytest.approx(1e-3, rel=1e-6)
    near.require("server")
    assert json.loads(json.dumps(near.to_dict()))["passed"] is True


def test_each_way_to_differ_fails() -> None:
    reference = scores_from_log_odds(LOG_ODDS)
    shifted = parity(reference, scores_from_log_odds(LOG_ODDS + 0.5))
    assert not shifted.passed and shifted.rank_agreement == 1
    small = scores_from_log_odds(LOG_ODDS / 1000)
    shuffled = scores_from_log_odds(LOG_ODDS[::-1] / 1000)
    assert parity(small, shuffled).rank_agreement == -1 and not parity(small, shuffled).passed
    with pytest.raises(
        StaleCertificateError, match=r"engine server differs .* up to 0\.5 \(0\.02 allowed\)"
    ):
        shifted.require("server")


def test_rows_that_one_engine_leaves_out_are_counted() -> None:
    holes = LOG_ODDS.copy()
    holes[:3] = np.nan
    found = parity(scores_from_log_odds(LOG_ODDS), scores_from_log_odds(holes))
    assert found.unscored_by_one == 3 and found.rows == 37 and not found.passed
    assert parity(scores_from_log_odds(holes), scores_from_log_odds(holes)).passed
    nothing = scores_from_log_odds(np.full(4, np.nan))
    assert not parity(nothing, nothing).passed
