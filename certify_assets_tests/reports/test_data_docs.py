from __future__ import annotations

import re

from certify_assets.corpora.quality import evaluate_suites, run_suites
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.reports.data_docs import render_data_docs
from certify_assets_tests.corpora.builders import corpus, trajectory


def test_data_docs_hold_every_suite_and_every_expectation() -> None:
    frame = corpus(tasks=30)
    manifest = make_manifest(frame["task_id"], "made")
    report = evaluate_suites(frame, manifest)
    assert list(report.results) == run_suites(frame, manifest)
    html = render_data_docs("made", report)
    assert html == render_data_docs("made", evaluate_suites(frame, manifest))
    for result in report.results:
        assert f"<code>{result.name}</code>" in html
    # the manifest is verified by the package, not by an expectation
    expectations = sum(
        result.expectations for result in report.results if result.name != "manifest"
    )
    assert html.count("</svg>met<") + html.count("</svg>not met<") == expectations
    assert "values must be unique." in html and "values must never be null." in html
    assert not re.search(r"<script|<link|<img|https?://|ge_load_time", html)


def test_what_failed_is_shown_as_text() -> None:
    frame = to_frame([trajectory(number) for number in range(4)]).assign(reward=1)
    frame["trajectory_id"] = "<script>alert(1)</script>$x"
    html = render_data_docs("<b>", evaluate_suites(frame))
    assert "2 of 5 suites failed" in html
    assert (
        "Sampled Unexpected Values: &lt;script&gt;alert(1)&lt;/script&gt;$x" in html
        and "4 unexpected values found." in html
    )
    assert "<script" not in html and "<b>" not in html
