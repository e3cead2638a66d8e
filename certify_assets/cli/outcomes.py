"""``certify ops outcomes``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import PATH, corpus_option
from certify_assets.cli.output import NOTHING, TextTable, answer, answers, say
from certify_assets.cli.reading import column_options, remedies, say_read_as
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.tables.settings import ReadingOptions
from certify_assets.words import WORDS, number_of

if TYPE_CHECKING:
    from certify_assets.operations.monitor_record import MonitorRecord
    from certify_assets.operations.outcomes import DecidedOutcome

_SHOWN = 2
_OUTCOMES = ("failure", "success")
_USES = {
    "monitor": "drawn: they feed the monitor",
    "labelled": "drawn and labelled: the label counts",
    "not_drawn": "not drawn: no random sample, so they feed nothing",
}


@click.command()
@click.argument("corpus")
@click.argument("path", metavar="FILE", type=PATH)
@click.option(
    "--source",
    default="outcome",
    metavar="NAME",
    help="Where the outcomes come from, such as ci, revert or refund. Each source says one thing "
    "of a run; where two differ, the later one counts and the run is listed.",
)
@column_options
@corpus_option
@answers
def outcomes(corpus: Corpus, path: Path, source: str, reading: ReadingOptions) -> None:
    """Add outcomes that got known after runs were decided: CI results, reverts, refunds.

    FILE is a table with trajectory_id and outcome. Runs that no batch decided are counted and left
    out; a file of such runs alone is refused. The same file again adds nothing. Outcomes of drawn
    runs feed the monitor, in the order of the draw: one counts once every drawn run before it has
    an outcome or a label. Labels of reviewers go before outcomes, and contradictions are listed.
    Outcomes of other runs are listed and feed nothing. Exit 3 where the monitor raises an alarm.
    """
    from certify_assets.operations.outcomes import decided_outcomes, import_outcomes

    with remedies():
        made = import_outcomes(corpus, path, reading, source=source)
    say_read_as(path, made.read_as)
    known, monitored = decided_outcomes(corpus), _monitored(corpus)
    uses = {use: [item for item in known if item.use == use] for use in _USES}
    wrong = [item for item in known if item.wrong]
    contradictions = [item for item in known if item.contradicted]
    document = {
        "corpus": corpus.name,
        "source": source,
        "added": made.added,
        "stood_already": made.stood_already,
        "without_outcome": made.without_outcome,
        "unknown": len(made.unknown),
        "uses": {use: len(items) for use, items in uses.items()},
        "wrong": [asdict(item) for item in wrong],
        "contradictions": [asdict(item) for item in contradictions],
        "monitor": monitored and {"status": monitored.status, "reason": monitored.reason},
    }
    rows = [
        [_USES[use], f"{len(items):,}", f"{sum(item.wrong for item in items):,}"]
        for use, items in uses.items()
    ]
    answer(
        document,
        f"{number_of(made.added, 'outcome')} added, {made.stood_already:,} known before.",
        *([f"In no decided batch: {number_of(len(made.unknown), 'run')}."] if made.unknown else []),
        TextTable("Known outcomes", ["use", "runs", "decided wrongly"], rows),
        *_listed("Decided wrongly", wrong),
        *_listed("Reviewers, or another source before, said otherwise", contradictions),
        *([f"Monitor: {monitored.reason}"] if monitored else []),
        code=NOTHING if monitored and monitored.status == "alarm" else 0,
    )


def _monitored(corpus: Corpus) -> MonitorRecord | None:
    """Put the outcomes to the monitor of the deployed judge."""
    from certify_assets.operations.monitoring import monitor_deployed

    try:
        return monitor_deployed(corpus)
    except CertifyError as error:
        say(f"warning: the outcomes are stored, and the monitor did not read them: {error}")
        return None


def _listed(title: str, items: Sequence[DecidedOutcome]) -> list[Any]:
    """Return a line with the number of runs, and one for each of the first."""
    if not items:
        return []
    lines = [
        f"  {item.trajectory_id}: {WORDS.get(item.decision, item.decision)}, then "
        f"{_OUTCOMES[item.outcome]} ({item.source})"
        for item in items[:_SHOWN]
    ]
    more = len(items) - len(lines)
    return [
        f"{title}: {len(items):,}",
        *lines,
        *([f"  and {more:,} more (--json lists them)"] if more else []),
    ]
