import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import Audit, Certificate, Sides, audit_certificate, certify
from certify_assets.reports.certificate_page import render_page
from certify_assets.reports.index_page import IndexEntry
from certify_assets.reports.wording import percent
from certify_assets.words import WORDS
from certify_assets_tests.pages import HOSTILE, assert_stands_alone, outline, text_of
from certify_assets_tests.reports.conftest import Case, arrays
from certify_assets_tests.reports.synthetic import score_table


def small(cal: pd.DataFrame, **settings: Any) -> Certificate:
    """Certify on a coarse grid: the figures cost a quarter."""
    return certify(*arrays(cal), grid=8, **settings)


def test_a_promise_on_average_is_said_as_one() -> None:
    cal = score_table(60, seed=2, signal=0.9).groupby("task_id").head(1)
    found = [
        small(cal, procedure="average", alpha=0.2, side=side) for side in ("reject", "release")
    ]
    assert all(item.certified for item in found)
    fresh = cal.assign(task_id="new-" + cal["task_id"])
    audits = [audit_certificate(item, *arrays(fresh)) for item in found]
    text = text_of(render_page(found, cal, audits=audits, title="drawn"))
    unaudited = render_page(found, cal, title="drawn")
    assert 'class="banner warn"' in unaudited and "<span>Certified on average</span>" in unaudited
    assert f"≤ {percent(0.2)} on average" in text and "exceeds twice the budget" in text
    assert "wrong on average, of the share decided" in text and "error at most" not in text
    assert "that the error of this certificate is below twice the budget" in text
    assert f"Both caps hold together with {percent(0.9)} confidence" in text
    (claim, _) = IndexEntry.of(Sides(tuple(found)), "judge", []).claims
    share = f"on average within {percent(0.2)} of the share decided"
    assert f"wrong decisions {share}, at most twice that" in claim


@pytest.mark.parametrize("kind", ["certified", "nothing"])
def test_the_page_is_one_well_formed_file_that_loads_and_runs_nothing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    html = request.getfixturevalue(kind).html
    assert_stands_alone(html)
    assert len(html.encode()) < 400_000


def test_the_banner_says_share_budget_and_confidence(certified: Case) -> None:
    text = text_of(certified.html)
    for certificate in certified.certificates:
        if (certificate.procedure, certificate.alpha) == ("pseudo_task", 0.1):
            assert certificate.certified and f"runs {WORDS[certificate.side]}" in text
            assert percent(certificate.coverage) in text
    promised = f"at most {percent(0.1)}, with {percent(0.9)} confidence by simulation"
    assert f"{promised} for both at once" in text


def test_the_page_calls_a_side_by_its_word(certified: Case) -> None:
    text = text_of(certified.html)
    for certificate in certified.certificates:
        text = text.replace(certificate.statement, "")
    assert set(WORDS.values()) <= set(re.findall(r"auto-\w+|review", text))
    assert not re.search(r"\b(reject|release)", text, re.IGNORECASE)


def test_deployed_certificates_have_hash_findings_and_assumptions(certified: Case) -> None:
    text = text_of(certified.html)
    for certificate in certified.certificates:
        if certificate.procedure != "pseudo_task":
            continue
        assert certificate.sha256 in text
        for finding in certificate.findings:
            assert f"{finding['code']} {finding['message']}" in text
    # whoever gets the page by mail has no docs
    assert "docs/" not in text
    for assumption in certified.certificates[0].assumptions:
        assert assumption in text or "docs/" in assumption


def test_audits_stand_with_both_coverages(certified: Case) -> None:
    text = text_of(certified.html)
    assert len(certified.audits) == 4
    for audit in certified.audits:
        errors = (percent(value, 2) for value in (audit.realized_error, audit.lower_bound))
        shares = (percent(value) for value in (audit.coverage, audit.own_coverage))
        assert " ".join([*errors, *shares, str(audit.covered_tasks)]) in text
        assert audit.verdict in text and audit.reason in text


def test_controls_and_lineage_are_told(certified: Case) -> None:
    text = text_of(certified.html)
    assert "text length alone 0.561" in text and "the agent's average alone 0.612" in text
    for value in ("ab" * 32, "cd" * 32, "12" * 32, certified.certificates[0].inputs["sha256"]):
        assert value in text
    assert "certify verify CERTIFICATE.json SCORES" in text


def test_what_a_judge_was_trained_on_and_chosen_from_is_said() -> None:
    cal = score_table(30, seed=9, signal=1.5)
    told = {
        "pseudo_labels": "7 runs were taken as failures",
        "split": "cal_half_b",
    }
    page = text_of(render_page([small(cal, provenance=told, candidates=4)], cal, title="told"))
    for words in (
        "7 runs were taken as failures",
        "of 30 tasks in half B of CAL",
        "4 candidates compared on these outcomes",
    ):
        assert words in page


def test_a_page_without_a_certificate_says_what_stopped_it_and_what_would_lift_it(
    nothing: Case,
) -> None:
    text = text_of(nothing.html)
    assert not any(c.certified for c in nothing.certificates if c.procedure == "pseudo_task")
    assert "Nothing certified" in text and "Every run goes to review." in text
    assert len(re.findall(r" is the limit: ", text)) == 5, "one in the verdict, four below"
    assert re.search(r"About [\d,]+ more tasks? like these would give an even chance", text)
    assert "a better judge or a larger α will" in text


def test_equal_inputs_make_equal_bytes() -> None:
    cal = score_table(30, seed=9, signal=1.5)
    pages = {render_page([small(cal)], cal, title="twice") for _ in range(2)}
    assert len(pages) == 1


def audit_of(sha256: str, **changes: Any) -> Audit:
    """An audit of the certificate with this hash."""
    found = Audit(
        "PASS",
        "",
        realized_error=0.0,
        coverage=0.5,
        covered_tasks=20,
        trajectories=60,
        tasks=20,
        known_tasks=0,
        unscored=0,
        certificate_sha256=sha256,
        own_coverage=0.5,
        paper_rule_pass=True,
    )
    return replace(found, **changes)


def hostile_frame(frame: pd.DataFrame) -> pd.DataFrame:
    names = {
        name: HOSTILE[number % len(HOSTILE)] + str(number)
        for number, name in enumerate(frame["task_id"].unique())
    }
    return frame.assign(task_id=frame["task_id"].map(names), agent=HOSTILE[0])


def test_hostile_names_are_text_and_nothing_else() -> None:
    cal = hostile_frame(score_table(40, seed=9, signal=1.5))
    named = {"judge": HOSTILE[0], HOSTILE[1]: HOSTILE[2]}
    certificate = small(cal, provenance=named, candidates=3, selection=HOSTILE[0])
    html = render_page(
        [certificate],
        cal,
        title=HOSTILE[0],
        audits=[audit_of(certificate.sha256, realized_error=0.01, reason=HOSTILE[1])],
        lineage={"corpus": HOSTILE[1], "note": HOSTILE[4]},
        controls={f"{HOSTILE[0]}_auroc": 0.5},
        certificate_file=HOSTILE[3],
    )
    parsed, text = outline(html), text_of(html)
    assert "script" not in parsed.tags and "img" not in parsed.tags and not parsed.handlers
    assert "<script" not in html and "onerror=alert(1)>" not in html
    for shown in ("{{ 7*7 }}{% raw %}", "$x^{2}$", f"Selection. {HOSTILE[0]}"):
        assert shown in text


@pytest.mark.parametrize(
    "change",
    [{"score": np.nan}, {"outcome": 0}, {"outcome": 1}, {"score": 0.0}, {"task_id": "only one"}],
)
@pytest.mark.parametrize("side", ["reject", "release"])
def test_a_table_at_the_edge_makes_a_page(change: dict[str, Any], side: str) -> None:
    cal = score_table(20, seed=4).assign(**change)
    html = render_page([small(cal, side=side)], cal, title="edge")
    assert "nan" not in re.findall(r"[a-z]+", text_of(html)) and "None" not in text_of(html).split()
    outline(html)


@pytest.mark.parametrize(
    ("verdict", "state", "heading"),
    [
        ("PASS", "certified", "Certified"),
        ("WARN", "warn", "Certified, but the audit on held-out tasks is inconclusive"),
        ("ERROR", "failed", "Do not deploy: the audit contradicts the certificate"),
    ],
)
def test_the_verdict_of_the_audit_decides_the_banner(
    verdict: str, state: str, heading: str
) -> None:
    cal = score_table(80, seed=4, signal=1.5)
    certificate = small(cal)
    audit = audit_of(certificate.sha256, verdict=verdict, realized_error=0.2, lower_bound=0.15)
    html = render_page([certificate], cal, title="audited", audits=[audit])
    assert f'class="banner {state}"' in html and f"<span>{heading}</span>" in html


def test_overlapping_sides_are_not_counted_twice() -> None:
    cal = score_table(80, seed=1, signal=2.2)
    pair = [certify(*arrays(cal), side=side, alpha=0.2) for side in ("reject", "release")]
    assert sum(c.coverage for c in pair) > 1
    text = text_of(render_page(pair, cal, title="overlap"))
    assert "fall under both thresholds and go to review" in text


def test_unscored_and_unlabelled_rows_are_counted() -> None:
    cal = score_table(80, seed=4, signal=1.5)
    cal.loc[:4, "score"] = np.nan
    labelled = cal.iloc[:-3]
    cal["outcome"] = cal["outcome"].astype("Int8")
    cal.loc[cal.index[-3:], "outcome"] = pd.NA
    text = text_of(render_page([small(labelled)], cal, title="gaps"))
    assert "rows without an outcome, left out" in text and "5 of" in text


def test_decided_runs_whose_label_says_otherwise_are_listed_with_links() -> None:
    scores = score_table(seed=3).assign(link="javascript:alert(1)")
    certificate = small(scores, alpha=0.2, side="reject")
    decided = scores[scores["score"] <= certificate.threshold]
    wrong = decided[decided["outcome"] == 1]
    worst = wrong.sort_values("score").index[0]
    scores.loc[worst, "link"] = "https://runs.example/1?a=b&c=d"
    page = render_page([certificate], scores, title="t")
    assert '<a href="https://runs.example/1?a=b&amp;c=d" rel="noopener noreferrer">' in page
    assert 'href="javascript:' not in page
    text = text_of(page)
    assert text.index(scores["trajectory_id"][worst]) > text.index("Decisions that labels")
    assert f"auto-fail {len(decided) - len(wrong)} {len(wrong)} " in text
