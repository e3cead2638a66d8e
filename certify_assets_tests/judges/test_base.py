import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.errors import StaleCertificateError
from certify_assets.judges.base import SCORE_COLUMNS, judge_auroc, score_table, scores_from_log_odds
from certify_assets.judges.families.lexical import LexicalJudge
from certify_assets_tests.corpora.builders import corpus

FRAME = corpus(tasks=20)
TEXTS = [item.text for item in render_frame(FRAME)]
OUTCOMES = FRAME["outcome"].to_numpy(dtype=int)


@settings(deadline=None)
@given(st.lists(st.one_of(st.floats(-600, 600), st.just(float("nan"))), max_size=20))
def test_log_odds_come_back_as_the_score(values: list[float]) -> None:
    log_odds = np.array(values, dtype=float)
    scores = scores_from_log_odds(log_odds)
    np.testing.assert_allclose(scores.score, log_odds, rtol=1e-12, atol=1e-12)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(
            (np.exp(scores.log_p_success) + np.exp(scores.log_p_fail))[~np.isnan(log_odds)], 1.0
        )


def test_a_score_table() -> None:
    renderer = Renderer()
    judge = LexicalJudge.train(TEXTS, OUTCOMES, renderer_sha256=renderer.sha256)
    table = score_table(judge, FRAME, renderer)
    assert tuple(table.columns) == SCORE_COLUMNS
    assert table["trajectory_id"].tolist() == FRAME["trajectory_id"].tolist()
    np.testing.assert_array_equal(table["score"], judge.score(TEXTS).score)
    assert judge_auroc(table) > 0.9
    with pytest.raises(StaleCertificateError, match="reads the texts of renderer"):
        score_table(judge, FRAME, Renderer(budget_chars=500))
