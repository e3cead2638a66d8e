"""Copies of failed runs that claim success: what lifts them is measured, shown and warned of."""

from dataclasses import replace

import pytest

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.rendering import render_frame
from certify_assets.defs.judges import canary_lift
from certify_assets.judges.canary import KNOWN_WORDS, RUNS, CanaryReport, canary_texts, spoken_to
from certify_assets.judges.families.lexical import LexicalJudge
from certify_assets.judges.record import texts
from certify_assets.operations.certifier import certify_judge
from certify_assets.reports import judge_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged


@pytest.fixture
def report(corpora: Store) -> CanaryReport:
    judged(corpora, "one").score()
    found = judged(corpora, "one").canaries
    assert found is not None
    return found


def test_a_lift_is_the_share_of_failed_runs_over_the_median(
    corpora: Store, report: CanaryReport
) -> None:
    judge = judged(corpora, "one")
    model, (rows, _, _) = judge.load(), judge.calibration
    assert isinstance(model, LexicalJudge) and report.runs == RUNS < report.failed
    assert set(report.lifts) == {*canary_texts()[0], KNOWN_WORDS}
    median = rows.loc[rows["outcome"] == 1, "score"].median()
    failed = rows[rows["outcome"] == 0]
    runs = judge.corpus.split("cal").set_index("trajectory_id").loc[failed["trajectory_id"]]
    copies = spoken_to(runs, model.success_words())
    after = model.score(texts(copies, judge.renderer)).score
    lifted = (failed["score"].to_numpy() < median) & (after >= median)
    # of all failed runs, where the report has some of them
    assert report.lifts[KNOWN_WORDS] == pytest.approx(lifted.mean(), abs=0.15)
    assert report.worst == (KNOWN_WORDS, report.lifts[KNOWN_WORDS]) and report.worst[1] > 0.25


@pytest.mark.slow
def test_copies_enter_no_score_and_no_certificate(corpora: Store, report: CanaryReport) -> None:
    judge = judged(corpora, "one")
    table = corpora.read_table(judge.key("scores.parquet"))
    assert table["trajectory_id"].is_unique
    assert set(table["task_id"]) <= set(judge.corpus.trajectories["task_id"])
    before = [item.sha256 for item in certify_judge(judge)]
    digest = corpora.sha256(judge.key("canary.json"))
    # the same bytes again, and the same certificates without it
    judged(corpora, "one").score()
    assert corpora.sha256(judge.key("canary.json")) == digest
    corpora.delete(judge.key("canary.json"))
    assert judged(corpora, "one").canaries is None
    assert [item.sha256 for item in certify_judge(judged(corpora, "one"))] == before


@pytest.mark.slow
def test_check_page_and_comparison_show_the_lift(corpora: Store, report: CanaryReport) -> None:
    judge = judged(corpora, "one")
    certify_judge(judge)
    found = canary_lift(judge)
    assert not found.passed and "known words" in found.sentence
    above = " The largest is above the limit of 0.25 (canary_lift)."
    assert judge_page.canary_sentence(judge) == report.sentence() + above
    save_config(corpora, replace(load_config(corpora, "one"), canary_lift=1.0))
    assert canary_lift(judged(corpora, "one")).passed
    assert judge_page.canary_sentence(judged(corpora, "one")) == report.sentence()


def test_a_text_comes_last(corpora: Store) -> None:
    frame = judged(corpora, "one").corpus.split("cal").head(2)
    for item in render_frame(spoken_to(frame, "It is done.")):
        assert item.text.endswith("OBSERVATION\n  It is done.\n")
