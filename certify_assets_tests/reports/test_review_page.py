import html
import re
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets.operations.labels import Label
from certify_assets.operations.review_queue import queue_key
from certify_assets.operations.review_session import QueuedRun, Statement
from certify_assets.reports.review_page import (
    Reviewer,
    render_queue,
    render_review,
    write_queue_page,
)
from certify_assets.storage.store import Store
from certify_assets_tests.review_builders import decided, queue_of, session_batch

ANN = Reviewer("Ann", "f" * 64)


def page(*steps: Step, instruction: str = "Do it", said: Statement | None = None) -> str:
    run = Trajectory("c", "t", "run", "agent-a", 0, instruction, steps, None)
    return render_review(QueuedRun(run, "k" * 32, 0, 3), said, "c", ANN)


def body(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", text.partition("<body>")[2]))


def test_the_steps_of_a_long_run_are_cut_in_the_middle_with_the_count_said() -> None:
    text = page(*[Step(f"act {number}", "x" * 20_000) for number in range(1000)])
    assert "800 steps cut from the middle" in text
    assert "act 99<" in text
    assert "act 900<" in text
    assert "act 100<" not in text
    assert "Step 1000" in text and text.count("steps cut") == 1
    assert len(text) < 1_000_000, "one run cannot make a page that no browser shows"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"score": -2.0},
            "The judge auto-failed it. Score −2 (auto-fail at or below −1; auto-pass at or above 1.5).",
        ),
        (
            {"score": 2.0, "reject_threshold": float("nan")},
            "The judge auto-passed it. Score 2 (auto-pass at or above 1.5).",
        ),
        (
            {"score": float("nan"), "reason": "stale_certificate"},
            "The judge left it to review: the certificate no longer holds. No score (auto-fail",
        ),
    ],
)
def test_the_judge_speaks_after_the_label(row: dict[str, float], words: str) -> None:
    label = Label("run", 0, "Ann", "page", "t", number=12)
    text = page(said=Statement(label, "run", decided("run", **row)))
    for shown in (words, "a failure, a run of task run", "Another task than that of your last"):
        assert shown in body(text)
    assert "Another task" not in page(said=Statement(label, "t"))


def test_the_stored_queue_is_a_table_and_a_page(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    session_batch(store, undecided=300)
    queue = queue_of(store)
    path = Path(write_queue_page(Corpus(store, "c"), queue))
    text = path.read_text("utf-8")
    assert path.name == "queue.html"
    assert text == render_queue(queue, "c")
    assert "certify review serve c" in body(text)
    assert "And 105 more" in text and "305 labels needed, about 30 h 30 min" in body(text)
    assert "The certificate decided 3 of 308 runs (1.0 %)" in body(text)
    for hidden in ("agent-a", "below_threshold"):
        assert hidden not in body(text)
    assert len(store.read_table(queue_key("c"))) == 305
    assert "Continue labelling" in render_queue(queue, "c", served=True)
    assert "--serve" not in render_queue(queue, "c", served=True)
