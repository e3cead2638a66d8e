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
from certify_assets.operations.review_queue import (
    MINUTES_PER_RUN,
    queue_agreement,
    queue_key,
    queue_page_key,
)
from certify_assets.reports.page import environment, markdown_table
from certify_assets.reports.review_run import STEPS, share_of_page, shown_parts, shown_steps
from certify_assets.reports.wording import compact, count, counted
from certify_assets.words import REASON_WORDS

if TYPE_CHECKING:
    from certify_assets.operations.review_queue import Budget, Queue
    from certify_assets.operations.review_session import QueuedRun, Statement
    from certify_assets.tables.agreement import Agreement

#: rows of the queue that its page shows
_MOST_ROWS: Final = 200
KIND_WORDS: Final = {
    "batch_draw": (
        "Batch draws",
        "runs of a provisional batch, drawn at random; their labels can certify the batch",
    ),
    "audit_sample": (
        "Audit sample",
        "random runs of random tasks; the monitor and recertification use them",
    ),
    "undecided": (
        "Undecided",
        "runs that the judge left to people; unscored first, then nearest to a threshold",
    ),
}


BUDGET_COLUMNS: Final = ("kind", "labels", "runs", "tasks", "tied", "time")


@dataclass(frozen=True)
class Reviewer:
    """Who the page is for: their name and the field that every form of theirs must carry."""

    name: str
    csrf: str


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
    criteria: str = "",
    blind: bool = False,
) -> str:
    """Render the page on which one run is labelled, which confirms the label before it.

    A `blind` one does not promise the judge's decision after the label.
    """
    # agent and run are folded away, score and decision are not in it: they would sway the reviewer
    run = shown.run
    return render_page(
        "review.html",
        title=f"Review of {corpus}",
        corpus=corpus,
        reviewer=reviewer,
        shown=shown,
        instruction=shown_parts(run.instruction, share_of_page(run)),
        criteria=defuse(criteria),
        steps=shown_steps(run),
        cut_steps=max(0, len(run.steps) - STEPS),
        minutes_per_run=MINUTES_PER_RUN,
        news=news,
        said=said,
        script=_script(),
        blind=blind,
    )


def render_queue(
    queue: Queue,
    corpus: str,
    *,
    served: bool = False,
    agreement: Agreement | None = None,
) -> str:
    """Render the queue, its budget and the agreement of reviewers."""
    return render_page(
        "review_queue.html",
        title=f"Review queue of {corpus}",
        corpus=corpus,
        budget=queue.budget,
        kind_words=KIND_WORDS,
        columns=BUDGET_COLUMNS,
        costs=budget_rows(queue.budget),
        saved=budget_sentence(queue.budget),
        rows=queue.frame.head(_MOST_ROWS).to_dict("records"),
        rest=len(queue.frame) - _MOST_ROWS,
        faults=queue.faults,
        served=served,
        agreement=agreement,
    )


def budget_rows(budget: Budget) -> list[list[str]]:
    """Return the cells of `BUDGET_COLUMNS`, a row a kind."""
    return [
        [
            KIND_WORDS[kind.kind][0],
            *map(count, (kind.labels, kind.runs, kind.tasks, kind.disputed)),
            duration(kind.minutes),
        ]
        for kind in budget.kinds
    ]


def budget_sentence(budget: Budget) -> str:
    """Say what the queue costs, and what the certificate saved."""
    needed = f"{duration(budget.minutes)} in all, assuming {compact(MINUTES_PER_RUN)} min a run."
    if not budget.saved:
        return needed
    return (
        f"{needed} The certificate decided {count(budget.saved)} of "
        f"{counted(budget.decided, 'run')} ({100 * budget.saved / budget.decided:.1f} %), "
        f"which saves {duration(budget.saved_minutes)}."
    )


def budget_markdown(budget: Budget) -> str:
    """Return the budget as a short table for an asset's page."""
    draws = [f"* {draw.sentence()}" for draw in budget.draws]
    table = markdown_table(BUDGET_COLUMNS, budget_rows(budget))
    return "\n".join([*table, "", budget_sentence(budget), *(["", *draws] if draws else [])])


def write_queue_page(corpus: Corpus, queue: Queue) -> str:
    """Write table and page of the queue below the data root; return where the page is."""
    corpus.store.write_table(queue_key(corpus.name), queue.frame)
    corpus.store.write_bytes(
        queue_page_key(corpus.name),
        render_queue(queue, corpus.name, agreement=queue_agreement(corpus)).encode("utf-8"),
    )
    return str(corpus.store.locate(queue_page_key(corpus.name)))


def render_message(
    title: str,
    sentence: str,
    *,
    corpus: str = "",
    reviewer: Reviewer | None = None,
    said: Statement | None = None,
    skipped: int = 0,
    onward: bool = True,
) -> str:
    """Render a message: nothing left, not found, refused; `onward` adds a link to the queue."""
    about = {"corpus": corpus, "reviewer": reviewer, "skipped": skipped, "onward": onward}
    return render_page("review_message.html", title=title, sentence=sentence, said=said, **about)


def render_page(template: str, **values: Any) -> str:
    """Fill a template of the review pages."""
    # without the hash other pages print: the policy names the style sheet, which is one for all
    page = environment().get_template(template)
    words = {"defuse": defuse, "duration": duration, "reasons": REASON_WORDS}
    return page.render(css=_style(), **words, **values)


@lru_cache(maxsize=1)
def _script() -> str:
    return environment().get_template("review.js").render()


@lru_cache(maxsize=1)
def _style() -> str:
    return "\n".join(
        environment().get_template(name).render(stamp=f"certify_assets {__version__}")
        for name in ("style.css", "review.css")
    )
