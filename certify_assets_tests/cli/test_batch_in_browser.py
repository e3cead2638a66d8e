"""A reviewer labels the draw of a provisional batch in a browser until its batch is certified."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import read_labels
from certify_assets.operations.layout import decisions_of
from certify_assets.operations.review_queue import load_queue
from certify_assets_tests.cli.review_client import served
from certify_assets_tests.cli.test_review_in_browser import enter, fits, press
from certify_assets_tests.operations_builders import ProvisionalBatch, agreeing, audit_of
from certify_assets_tests.paths import assert_painted

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_draw_is_labelled_by_keyboard_until_the_batch_is_certified(
    browser: Any, provisional: ProvisionalBatch, tmp_path: Path
) -> None:
    audit, corpus = audit_of(provisional), Corpus(provisional.store, "c")
    outcomes = {
        hashlib.sha256(name.encode()).hexdigest()[:32]: outcome
        for name, outcome in agreeing(audit).items()
    }
    (wanted,) = load_queue(corpus).budget.draws
    before = corpus.store.head("c")[0]
    with served(provisional.store, "--reviewer", "Ann") as server:
        page = browser.new_context(
            java_script_enabled=False, viewport={"width": 1280, "height": 900}
        ).new_page()
        enter(page, server, "Ann")
        number = 0
        while not (certified := page.get_by_text("decided by a certificate of the batch").count()):
            key = page.locator("input[name=run]").first.get_attribute("value")
            visible = page.locator("body").inner_text()
            for word in ("draw", "provisional", "agent-new", "release", provisional.name):
                assert word not in visible, word
            number += 1
            press(page, "s" if outcomes[key] else "x")
            page.get_by_text(f"Event {before + number} of this corpus").wait_for()
        assert certified == 1 and wanted.least <= number <= wanted.most
        page.screenshot(path=tmp_path / "certified.png")
        assert_painted(tmp_path / "certified.png")
        assert fits(page, 1280)
        page.goto(server.url.partition("?")[0] + "queue")
        assert page.get_by_text("its draw wants").count() == 0
        page.screenshot(path=tmp_path / "queue.png")
    audit = audit_of(provisional)
    assert audit.state == "certified" and audit.labels_used <= number
    assert len(read_labels(Corpus(provisional.store, "c"))) == number
    rows = decisions_of(Corpus(provisional.store, "c"), provisional.name)
    assert int((rows["reason"] == "batch_certificate").sum()) == audit.decided > 0
