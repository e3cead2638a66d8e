"""Labelling at speed in a browser: plain keys, undo, help, search, a phone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.schema import Step, Trajectory
from certify_assets.storage.store import Store
from certify_assets_tests.cli.review_client import served
from certify_assets_tests.cli.test_review_in_browser import enter, fits
from certify_assets_tests.review_builders import decided, labels_of, write_batch

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def label(page: Any, key: str) -> None:
    """Press a key and wait until the next run is there."""
    run = page.locator("input[name=run]").first.get_attribute("value")
    page.keyboard.press(key)
    page.locator(f"input[name=run]:not([value='{run}'])").first.wait_for(state="attached")


def outcomes(store: Store) -> list[int | None]:
    return [one.outcome for one in labels_of(store)]


def test_sixty_labels_by_plain_keys_on_a_phone(browser: Any, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    runs = [(f"r{n}", f"retail/{1000 + n}") for n in range(62)]
    write_batch(store, [decided(run, task_id=task, asked="undecided") for run, task in runs])
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page, troubles = context.new_page(), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda line: troubles.append(line.text))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))
    page.on("popup", lambda popup: troubles.append(popup.url))
    with served(store, "--reviewer", "Ann") as server:
        enter(page, server, "Ann")
        began, undone = time.monotonic(), 0
        for n in range(60):
            label(page, "sxaf"[n % 4])
            if n % 15 == 14:
                wrong = page.locator(".said b + *, .said p").first.inner_text()
                assert wrong.startswith("Saved:")
                label(page, "u")
                undone += 1
                said = page.locator(".said .back").inner_text()
                assert said.startswith("Undone: your label of c/retail/10")
                assert ("(failure)" if n % 4 in (1, 3) else "(success)") in said
                assert "Before it:" in page.locator(".said").inner_text()
                label(page, "sxaf"[n % 4])
                assert "Undone" not in page.locator(".said").inner_text()
            assert fits(page, 390)
            assert page.evaluate("document.title") == "Review of c"
        seconds = time.monotonic() - began
        assert page.locator("progress").get_attribute("value") == "60"
        about = page.locator(".top").inner_text()
        assert "60 of 62 labelled" in about and "at your median of" in about
        assert page.locator("main script, img, svg, iframe, base, link").count() == 0
        page.screenshot(path=tmp_path / "phone.png")
    labelled = outcomes(store)
    assert len(labelled) == 60 + 2 * undone and labelled.count(None) == undone == 4
    assert troubles == []
    made = 60 + 2 * undone
    print(f"\n60 labels and {undone} undone in {seconds:.1f} s: {60 * made / seconds:.0f} keys/min")


def test_search_unfolds_what_it_finds(browser: Any, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    rows = [{"cell": "word " * 80 + ("needle" if n == 27 else "")} for n in range(30)]
    runs = [
        Trajectory(
            "c", "t", "r", "a", 0, "Do it", (Step("go", f"tool find: {json.dumps(rows)}"),), None
        )
    ]
    write_batch(store, [decided("r", task_id="t", asked="undecided")], runs)
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    with served(store, "--reviewer", "Ann") as server:
        enter(page, server, "Ann")
        assert not page.get_by_text("needle").first.is_visible()
        page.keyboard.press("/")
        page.keyboard.type("NEEDLE")
        assert page.locator(".search output").inner_text() == "1 of 1"
        page.get_by_text("needle").first.wait_for(state="visible")
        page.keyboard.press("Escape")
        assert not page.locator(".search output").inner_text().endswith("as text")
        # the search unfolded all, so that the key folds; and unfolds again
        page.keyboard.press("e")
        assert page.locator(".run details:not([open])").count() > 0
        page.keyboard.press("e")
        assert page.locator(".run details:not([open])").count() == 0
        with page.expect_popup() as opened:
            page.get_by_role("link", name="The whole run as text").click()
        whole = opened.value
        whole.wait_for_load_state()
        assert "needle" in whole.inner_text("body") and "OBSERVATION" in whole.inner_text("body")
