"""Recalibration: maps that keep the order change nothing, isotonic regression ties alone."""

import html
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import InputError
from certify_assets.evaluation.audit import audit_judge
from certify_assets.evaluation.recalibration import (
    METHODS,
    TABLE_COLUMNS,
    RecalibrationReport,
    fit_recalibration,
    recalibrate,
    write_recalibration,
)
from certify_assets.reports import judge_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged


def _rows(slope: float, intercept: float, count: int = 4000) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 2, count)
    return scores, (rng.random(count) < 1 / (1 + np.exp(-(slope * scores + intercept)))).astype(
        np.int8
    )


def test_the_fits_find_what_the_scores_were_drawn_by() -> None:
    # 4,000 draws: the standard error of slope and intercept is about .03 and .04
    platt = fit_recalibration("platt", *_rows(0.5, -1.0))
    assert platt.parameters == pytest.approx({"slope": 0.5, "intercept": -1.0}, abs=0.12)
    assert fit_recalibration("temperature", *_rows(0.5, 0.0)).parameters[
        "inverse_temperature"
    ] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_every_map_keeps_the_order_and_what_is_unscored(method: str) -> None:
    scores, outcomes = _rows(0.8, 0.3, 300)
    values = np.concatenate([np.sort(scores), [np.nan]])
    mapped = fit_recalibration(method, scores, outcomes).apply(values)
    assert np.isnan(mapped[-1])
    assert np.isfinite(mapped[:-1]).all()
    assert (np.diff(mapped[:-1]) >= 0).all()
    assert (np.unique(mapped[:-1]).size < 300) == (method == "isotonic")


def test_rows_that_a_score_separates_give_finite_maps() -> None:
    scores, outcomes = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0, 0, 1, 1], dtype=np.int8)
    for method in METHODS:
        assert np.isfinite(fit_recalibration(method, scores, outcomes).apply(scores)).all()
    with pytest.raises(InputError, match="one outcome"):
        fit_recalibration("platt", scores, np.ones(4, dtype=np.int8))
    with pytest.raises(InputError, match="no recalibration"):
        fit_recalibration("beta", scores, outcomes)


def test_certificates_change_by_ties_alone(corpora: Store) -> None:
    report = write_recalibration(judged(corpora, "one"))
    stored = corpora.read_json("judges/lexical/one/recalibration.json")
    assert report == recalibrate(judged(corpora, "one"))
    assert report.to_dict() == stored and RecalibrationReport.from_dict(stored) == report
    # no RL split here: fitted on SFT
    assert report.fitted_on == "sft"
    assert report.trained_on
    assert [item.method for item in report.methods] == list(METHODS)
    none, temperature, platt, isotonic = report.methods
    assert any(cell.certified for cell in none.certificates)
    for item in (temperature, platt):
        assert item.effect == "unchanged" and item.distinct_scores == none.distinct_scores
        for cell, before in zip(item.certificates, none.certificates, strict=True):
            assert cell.certified == before.certified
            assert cell.coverage == before.coverage
            assert cell.threshold_rank == before.threshold_rank
            assert cell.differing_decisions == 0
    assert isotonic.effect in ("unchanged", "ties")
    assert isotonic.distinct_scores < none.distinct_scores
    rows = report.table_rows()
    assert len(rows) == 16 and all(len(row) == len(TABLE_COLUMNS) for row in rows)


@pytest.mark.slow
def test_the_table_is_on_the_judges_page_while_it_is_of_its_scores(corpora: Store) -> None:
    audit_judge(judged(corpora, "one"))

    def page() -> str:
        judge_page.write_page(judged(corpora, "one"))
        return corpora.read_bytes("judges/lexical/one/page.html").decode()

    assert 'id="recalibration"' not in page()
    report = write_recalibration(judged(corpora, "one"))
    drawn = page()
    assert html.escape(report.verdict) in drawn
    assert drawn.count('<th scope="row">isotonic</th>') == 4
    assert "runs of SFT" in drawn
    corpora.write_json(
        "judges/lexical/one/recalibration.json", {**report.to_dict(), "scores_sha256": "0" * 64}
    )
    assert "of other scores than the ones of this page" in page()


def test_a_judge_that_ranks_backwards_gets_a_negative_slope() -> None:
    scores, outcomes = _rows(-1.0, 0.0, 500)
    assert fit_recalibration("platt", scores, outcomes).parameters["slope"] < 0
