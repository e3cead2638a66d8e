"""The monitor's page and verdict: one file, no script, short enough to be inline."""

import numpy as np
import pytest

from certify_assets.certificates import certify
from certify_assets.operations.monitoring import MonitorRecord, describe_monitors, monitor_entry
from certify_assets.reports.monitor_page import (
    monitor_markdown,
    monitor_metrics,
    render_monitor_page,
)
from certify_assets_tests.builders import score_rows
from certify_assets_tests.pages import assert_stands_alone
from certify_assets_tests.reports.conftest import arrays


def make(*, tasks: int = 120, wrong_from: str | None = None) -> MonitorRecord:
    frame = score_rows(tasks=tasks, attempts=6, seed=11)
    if wrong_from is not None:
        frame["outcome"] = frame["outcome"].where(
            frame["task_id"] < wrong_from, 1 - frame["outcome"]
        )
    cal = score_rows(tasks=120, attempts=6, seed=3)
    cal = arrays(cal.assign(task_id="cal-" + cal["task_id"]))
    entries = [
        monitor_entry(certify(*cal, side=side, alpha=0.2), *arrays(frame))
        for side in ("reject", "release")
    ]
    status, reason = describe_monitors(entries)
    return MonitorRecord(
        corpus="corpus",
        judge="judge",
        status=status,
        reason=reason,
        certificates=tuple(entry.certificate_sha256 for entry in entries),
        monitors=tuple(entries),
        findings=({"code": "code_<b>", "message": "<i>told</i>"},),
    )


@pytest.fixture(scope="module")
def alarm() -> MonitorRecord:
    return make(wrong_from="t060")


@pytest.mark.slow
def test_the_page_shows_both_sides_and_runs_nothing(alarm: MonitorRecord) -> None:
    html = render_monitor_page(alarm, title="<script>alert(1)</script>")
    assert "&lt;script&gt;" in html
    assert "<i>told" not in html
    assert "code_&lt;b&gt;" in html
    assert_stands_alone(html)
    assert html.count('role="img"') == 2 and html.count("alarm: issue a new certificate") == 2
    assert html == render_monitor_page(alarm, title="<script>alert(1)</script>")


def test_the_verdict_is_short_and_holds_no_text_of_the_data(alarm: MonitorRecord) -> None:
    few = make(tasks=5)
    assert few.status == "too_few" and "too few" in few.reason
    block = monitor_markdown(few)
    assert len(block) < 1000 and "told" not in block and block.count("|auto-fail|") == 1
    metrics = monitor_metrics(alarm)
    assert len(metrics) == 8 and all(np.isfinite(value) for value in metrics.values())
    assert (
        metrics["error_low_reject_at_0.2"]
        <= metrics["error_reject_at_0.2"]
        <= metrics["error_high_reject_at_0.2"]
    )
