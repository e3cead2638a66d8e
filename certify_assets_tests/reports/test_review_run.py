"""A run as reviewers read it: speakers, JSON over lines."""

from __future__ import annotations

import html
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets.operations.review_session import QueuedRun
from certify_assets.reports.review_page import Reviewer, render_review
from certify_assets.reports.review_run import shown_steps, whole_text

ORDER = json.dumps(
    {
        "order_id": "#W1009",
        "items": [{"item_id": str(n), "price": 10 + n, "note": "x" * 30} for n in range(40)],
        "address": {"city": "Zürich", "lines": "first\nsecond"},
        "said": "word " * 400,
    }
)


def run(*steps: Step, instruction: str = "Do it") -> Trajectory:
    return Trajectory("c", "t", "run", "agent-a", 0, instruction, steps, None)


def page(*steps: Step, criteria: str = "", labelled: int = 0) -> str:
    shown = QueuedRun(run(*steps), "k" * 32, 0, 3, labelled)
    return render_review(shown, None, "c", Reviewer("Ann", "f" * 64), criteria=criteria)


def test_speakers_are_named_and_no_text_can_pass_for_another() -> None:
    steps = (
        Step("Sure.", "user: my id is 1\nagent: forged"),
        Step('get({"id": 1})', "tool get_order: 200"),
        Step("", "</pre></div><div class='bubble agent'>forged"),
    )
    shown = [message for step in shown_steps(run(*steps)) for message in step.messages]
    assert [(message.speaker, message.kind) for message in shown] == [
        ("Agent", "agent"),
        ("User", "user"),
        ("Agent", "agent"),
        ("Tool get_order", "tool"),
        ("Environment", "tool"),
    ]
    assert page(*steps).count('<div class="bubble agent') == 2


def test_json_gets_lines() -> None:
    text = page(Step("", f"tool find: {ORDER} and more"))
    for shown in (
        '{\n  "order_id": "#W1009",\n  "items": [\n    {\n      "item_id": "0",\n      "price": 10',
        '"city": "Zürich",\n    "lines": "first\n     second"\n  },',
        " and more",
    ):
        assert shown in html.unescape(text), shown
    assert text.count("word") >= 400 and 'class="json">' in text
    exact = '{"a": 1.10, "a": 12345678901234567890, "path": "c:\\\\new", "pad": "' + "z" * 60 + '"}'
    shown = html.unescape(page(Step("", exact)))
    assert '"a": 1.10,\n  "a": 12345678901234567890,\n  "path": "c:\\\\new",' in shown


def test_what_the_page_leaves_out_is_counted_and_in_the_whole_text() -> None:
    many = json.dumps([{"n": n, "text": "y" * 100} for n in range(2000)])
    given = run(Step("act", many), Step("w" * 50_000, ""))
    text = page(*given.steps)
    assert "characters cut]" in text and len(text) < 400_000
    whole = whole_text(given)
    assert many in whole and "w" * 50_000 in whole and "STEP 2 ACTION" in whole
    assert 'href="text?run=' + "k" * 32 in text


def test_unseen_characters_of_json_are_written_out_and_depth_is_bounded() -> None:
    hidden = page(Step("", json.dumps({"name": "safe\u202etxt\x1b[2J", "pad": "z" * 80})))
    assert "safe\\u{202e}txt" in hidden and "\x1b" not in hidden
    for deep in ("[" * 5000 + "1" + "]" * 5000, f'{"[" * 90}"{"q" * 100}"{"]" * 90}'):
        page(Step("", deep))


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=30,
    )
)
def test_any_json_is_shown_and_escaped(value: object) -> None:
    text = page(Step("", f"tool: {json.dumps(value)} <b>"))
    assert "<b>" not in text.partition("<main")[2]
    assert text.count("<pre ") == text.count("</pre>")


def test_criteria_are_next_to_the_run_and_escaped() -> None:
    assert "# Refund &lt;script&gt;\n- asks" in page(criteria="# Refund <script>\n- asks")
    assert "Success criteria" not in page()


def test_the_page_says_how_far_a_reviewer_is() -> None:
    text = page(labelled=9)
    assert "3 runs left for you, about 18 min at 6 min a run" in text
    assert '<progress max="12" value="9"' in text
