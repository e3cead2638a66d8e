"""The report that an engine must pass before its scores may certify."""

import json

import numpy as np
import pytest

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.base import scores_from_log_odds
from certify_assets.judges.lm.parity import parity

LOG_ODDS = np.linspace(-3, 3, 40) + 0.01


def test_rounding_passes_and_a_larger_difference_is_refused() -> None:
    reference = scores_from_log_odds(LOG_ODDS)
    assert parity(reference, reference).max_difference == 0
    near = parity(reference, scores_from_log_odds(LOG_ODDS + 1e-3))
    assert near.passed and near.max_difference == pytest.approx(1e-3, rel=1e-6)
    near.require("server")
    assert json.loads(json.dumps(near.to_dict()))["passed"] is True
    shifted = parity(reference, scores_from_log_odds(LOG_ODDS + 0.5))
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
