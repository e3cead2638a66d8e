"""Review pages: the run to label, the queue with its budget, messages."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from certify_assets._version import __version__
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.rendering import defuse
from certify_assets.operations.agreement import DRIFT_LEVEL
from certify_assets.operations.layout import PROVISIONAL, queue_key, queue_page_key
from certify_assets.operations.review_queue import MINUTES_PER_RUN, queue_agreement
from certify_assets.operations.review_session import ReviewPace
from certify_assets.reports.review_run import (
    STEPS,
    criterion_lines,
    facts_of,
    share_of_page,
    shown_parts,
    shown_steps,
)
from certify_assets.reports.wording import (
    compact,
    count,
    counted,
    environment,
    markdown_table,
    percent,
)

if TYPE_CHECKING:
    from certify_assets.operations.agreement import Agreement
    from certify_assets.operations.review_queue import Budget, Queue
    from certify_assets.operations.review_session import JudgeDecision, QueuedRun, Statement

#: rows of the queue that its page shows
_MOST_ROWS: Final = 200
KIND_WORDS: Final = {
    "batch_draw": (
        "Batch draws",
        "runs of a provisional batch, drawn at random: their labels certify the batch or do not",
    ),
    "audit_sample": (
        "Audit sample",
        (
            "every attempt of tasks drawn at random: they extend CAL and feed the monitor, once a "
            "task is whole"
        ),
    ),
    "spot_check": (
        "Spot checks",
        "what the judge decided by itself, in tasks drawn at random: they feed the monitor",
    ),
    "undecided": (
        "Undecided",
        "what the judge left to people: unscored first, then nearest to a threshold",
    ),
}


@dataclass(frozen=True)
class Reviewer:
    """Who the page is for: their name and the field that every form of theirs must carry."""

    name: str
    csrf: str
    owned: bool = False  # the link is theirs alone, so they cannot be someone else


@dataclass(frozen=True)
class _LastLabel:
    """What a reviewer labelled last; what the judge said of it is folded below."""

    line: int
    word: str
    outcome: str
    task: str
    blind: bool
    judge: str
    reasons: Sequence[str] = ()


def duration(minutes: float) -> str:
    """Write minutes as hours and minutes: 384 is 6 h 24 min."""
    hours, rest = divmod(math.ceil(minutes), 60)
    return f"{count(hours)} h {rest} min" if hours else f"{rest} min"


def style_hash() -> str:
    """Return the source of the one style sheet as a content security policy names it."""
    return _source(_style())


def script_hash() -> str:
    """Return the source of the one script, that of the page with a run, as `style_hash`."""
    return _source(_script())


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def render_review(
    shown: QueuedRun,
    said: Statement | None,
    corpus: str,
    reviewer: Reviewer,
    *,
    news: Sequence[str] = (),
    undone: Statement | None = None,
    pace: ReviewPace | None = None,
    blind: bool = False,
) -> str:
    """Render the page on which one run is labelled, which confirms the label before it.

    A `blind` one does not promise the judge's decision after the label.
    """
    # agent and run are folded away, score and decision are not in it: they would sway the reviewer
    run, pace = shown.run, pace or ReviewPace(0)
    return _render(
        "review.html",
        title=f"Review of {corpus}",
        corpus=corpus,
        reviewer=reviewer,
        shown=shown,
        facts=facts_of(run),
        instruction=shown_parts(run.instruction, share_of_page(run)),
        criterion=criterion_lines(shown.criterion),
        steps=shown_steps(run),
        cut_steps=max(0, len(run.steps) - STEPS),
        left=counted(shown.left, "run"),
        labelled=pace.labelled,
        every=pace.labelled + shown.left,
        time_left=_time_left(shown.left, pace, MINUTES_PER_RUN),
        news=news,
        said=None if said is None else _said(said),
        undone=None if undone is None else _said(undone),
        script=_script(),
        blind=blind,
    )


def _time_left(left: int, pace: ReviewPace, minutes: float) -> str:
    """Say how long the rest takes: at the reviewer's own pace, or as assumed."""
    if pace.seconds is None:
        return f"about {duration(left * minutes)} at {compact(minutes)} min a run, an assumption"
    return (
        f"about {duration(left * pace.seconds / 60)} at your median of "
        f"{compact(round(pace.seconds, 1))} s a label (your last {pace.measured})"
    )


def render_queue(
    queue: Queue,
    corpus: str,
    *,
    served: bool = False,
    agreement: Agreement | None = None,
) -> str:
    """Render the queue, its budget and the agreement of reviewers."""
    budget = queue.budget
    kinds = [
        {
            "name": KIND_WORDS[kind.kind][0],
            "about": KIND_WORDS[kind.kind][1],
            "minutes": duration(kind.minutes),
        }
        | {name: count(getattr(kind, name)) for name in ("runs", "tasks", "labels", "disputed")}
        for kind in budget.kinds
    ]
    rows = [
        {
            **row,
            "kind": KIND_WORDS[row["kind"]][0],
            "task_id": defuse(row["task_id"]),
            "trajectory_id": defuse(row["trajectory_id"]),
        }
        for row in queue.frame.head(_MOST_ROWS).to_dict("records")
    ]
    share = budget.saved / budget.decided if budget.decided else 0.0
    return _render(
        "review_queue.html",
        title=f"Review queue of {corpus}",
        corpus=corpus,
        kinds=kinds,
        rows=rows,
        rest=len(queue.frame) - len(rows),
        labels=counted(budget.labels, "label"),
        minutes=duration(budget.minutes),
        minutes_per_run=compact(MINUTES_PER_RUN),
        decided=counted(budget.decided, "run"),
        saved=counted(budget.saved, "run"),
        saved_share=percent(share),
        saved_minutes=duration(budget.saved_minutes),
        draws=[*(draw.sentence() for draw in budget.draws), *queue.faults],
        served=served,
        agreement=agreement,
        gold=agreement is not None and any(one.gold for one in agreement.reviewers),
        drift_level=DRIFT_LEVEL,
    )


def budget_markdown(budget: Budget) -> str:
    """Return the budget as a short table for an asset's page."""
    rows = [
        (
            KIND_WORDS[kind.kind][0],
            *(str(number) for number in (kind.labels, kind.runs, kind.tasks)),
            duration(kind.minutes),
        )
        for kind in budget.kinds
    ]
    saved = (
        f"{count(budget.saved)} of {counted(budget.decided, 'run')} were decided without a "
        f"person: {duration(budget.saved_minutes)} saved, at {compact(MINUTES_PER_RUN)} min "
        "a run, which is assumed."
    )
    draws = [f"* {draw.sentence()}" for draw in budget.draws]
    table = markdown_table(("kind", "labels", "runs", "tasks", "time"), rows)
    return "\n".join([*table, "", saved, *(["", *draws] if draws else [])])


def write_queue_page(corpus: Corpus, queue: Queue) -> str:
    """Write table and page of the queue below the data root; return where the page is."""
    corpus.store.write_table(queue_key(corpus.name), queue.frame)
    corpus.store.write_bytes(
        queue_page_key(corpus.name),
        render_queue(queue, corpus.name, agreement=queue_agreement(corpus)).encode("utf-8"),
    )
    return str(corpus.store.locate(queue_page_key(corpus.name)))


def render_name(
    corpus: str, csrf: str, *, name: str = "", owned: bool = False, problem: str = ""
) -> str:
    """Render the page that asks who is reviewing, or shows whose link this is."""
    return _render(
        "review_name.html",
        title=f"Review of {corpus}",
        corpus=corpus,
        csrf=csrf,
        name=name,
        owned=owned,
        problem=problem,
    )


def render_message(
    title: str,
    sentence: str,
    *,
    corpus: str = "",
    reviewer: Reviewer | None = None,
    said: Statement | None = None,
    undone: Statement | None = None,
    skipped: int = 0,
    onward: bool = True,
) -> str:
    """Render a message: nothing left, not found, refused; `onward` adds a link to the queue."""
    about = {"corpus": corpus, "reviewer": reviewer, "skipped": skipped, "onward": onward}
    return _render(
        "review_message.html",
        title=title,
        sentence=sentence,
        said=None if said is None else _said(said),
        undone=None if undone is None else _said(undone),
        **about,
    )


def _render(template: str, **values: Any) -> str:
    # without the hash other pages print: the policy names the style sheet, which is one for all
    return environment().get_template(template).render(css=_style(), **values)


@lru_cache(maxsize=1)
def _script() -> str:
    return environment().get_template("review.js").render()


@lru_cache(maxsize=1)
def _style() -> str:
    return "\n".join(
        environment().get_template(name).render(stamp=f"certify_assets {__version__}")
        for name in ("style.css", "review.css")
    )


def _said(said: Statement) -> _LastLabel:
    return _LastLabel(
        line=said.label.number,
        word="a success" if said.label.outcome else "a failure",
        outcome="success" if said.label.outcome else "failure",
        task=defuse(said.task_id if said.judged is None else said.judged.task_id),
        blind=said.blind,
        judge=_judge(said.judged),
        reasons=[
            f"{defuse(reason.feature)} {reason.contribution:+.2f}"
            for reason in (said.judged.reasons if said.judged else ())
        ],
    )


def _judge(found: JudgeDecision | None) -> str:
    if found is None:
        return "Nothing is known of the run any more."
    words = {
        "reject": "The judge rejected it.",
        "release": "The judge released it.",
        PROVISIONAL: "It waits for the certificate of its batch.",
    }
    verdict = words.get(
        found.decision, f"The judge left it to human review ({found.reason.replace('_', ' ')})."
    )
    score = found.score
    thresholds = {
        "reject at or below": found.reject_threshold,
        "release at or above": found.release_threshold,
    }
    known = [
        f"{where} {compact(threshold)}"
        for where, threshold in thresholds.items()
        if math.isfinite(threshold)
    ]
    return " ".join(
        [
            verdict,
            f"Score {compact(score)}" if math.isfinite(score) else "No score",
            f"({'; '.join(known)})." if known else "(no threshold).",
        ]
    )
