"""``certify monitor``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from certify_assets.certificates.certificate_files import Choice, load_certificates, one_a_side
from certify_assets.cli.options import (
    certificate_argument,
    judge_option,
    scores_argument,
    split_option,
    truth_option,
)
from certify_assets.cli.output import NOTHING, PATH, answer, answers
from certify_assets.cli.reading import choice_options, column_options, labelled_rows, read_scores
from certify_assets.errors import InputError
from certify_assets.tables.drawn import filled
from certify_assets.tables.settings import DRAWN_BY, ReadingOptions
from certify_assets.words import WORDS, number_of, percent
from certify_assets.work import counted

if TYPE_CHECKING:
    from certify_assets.certificates import Monitoring
    from certify_assets.tables.score_table import ScoreTable


@click.command()
@certificate_argument
@scores_argument
@click.option(
    "--labels",
    type=PATH,
    help="Labels by trajectory_id in the order of their arrival, if SCORES has no outcomes.",
)
@judge_option
@truth_option
@split_option
@choice_options
@column_options
@answers
def monitor(
    certificate: Path,
    scores: Path,
    labels: Path | None,
    judge: str | None,
    truth: str | None,
    split: str | None,
    choice: Choice,
    reading: ReadingOptions,
) -> None:
    """Raise an alarm when newly labelled tasks show an error above α.

    The alarm (exit 3) is false with probability at most δ, even if you look after every label. For
    a certificate that keeps α on average, it is about the cap at 2α.

    SCORES is a score table or a log with an outcome in every row, in the order of their arrival.
    A task has the place of its first row. With --labels, outcomes and order come from that file,
    and runs that it does not name are left out. From a document with one certificate for each side,
    all certified ones are monitored; --side picks one.

    The tasks must be drawn at random before scoring, with all attempts labelled. A task with
    unlabelled attempts is left out and counted, unless --labels is the file of a draw. A table
    is refused if its column provenance is not audit_sample, or its column audit_sample is not true.
    Only rows that CERTIFICATE decides count. A task weighs by the share of its attempts that are
    decided.
    """
    from certify_assets.certificates import monitor_certificate
    from certify_assets.certificates.sides import budget_words
    from certify_assets.tables.score_table import NOT_STATED, require_audit_sample

    certificates = one_a_side(certificate, load_certificates(certificate, choice))
    reading = reading.as_issued(certificate, certificates)
    read = read_scores(scores, reading, outcomes=labels is None, judge=judge, truth=truth)
    whole = read.choose_split(split, required=True)
    table = labelled_rows(whole, labels, reading)
    more: list[dict[str, str]] = []
    # chance chose which attempts of a draw have a label
    if labels is None or not filled(labels, DRAWN_BY):
        table, more = _whole_tasks(whole, table)
    columns = table.scores, table.labels, table.tasks
    stated = require_audit_sample(table.source, table.places if labels else None)
    if labels:
        stated = require_audit_sample(labels) or stated
    if not stated:
        more.append(NOT_STATED)
    # one that certifies nothing decides nothing to monitor; alone it is refused
    monitored = [item for item in certificates if item.certified] or certificates[:1]
    found = {}
    for item in counted("monitoring", monitored):
        result = monitor_certificate(item, *columns)
        found[item.side] = replace(result, findings=(*result.findings, *more))
    lines: list[str] = []
    for item in monitored:
        lines += _lines(found[item.side], WORDS[item.side], budget_words(item))
    alarm = any(result.alarm for result in found.values())
    followed = [{"side": side, **result.to_dict()} for side, result in found.items()]
    nothing = [item.side for item in certificates if not item.certified]
    # of both sides, the figures of the one with most evidence of a larger error
    lead = max(followed, key=lambda item: (item["alarm"], item["e_value"]))
    answer(
        found[certificates[0].side].to_dict()
        if len(certificates) == 1
        else {**lead, "monitors": followed, "not_certified": nothing},
        *lines,
        code=NOTHING if alarm else 0,
    )


def _whole_tasks(whole: ScoreTable, table: ScoreTable) -> tuple[ScoreTable, list[dict[str, str]]]:
    """Leave out tasks of which a scored run has no label yet, and say how many these are."""
    from certify_assets.certificates.monitor import partly_labelled

    labelled = np.isin(whole.places, table.places)
    waiting = partly_labelled(whole.scores, labelled, whole.tasks)
    if not waiting:
        return table, []
    found = table.take(np.array([task not in waiting for task in table.tasks]))
    if not len(found):
        raise InputError(
            f"Each labelled task of {whole.path} has scored runs without a label. Label all "
            "attempts of a task, or take runs that were not drawn out of the table."
        )
    number = "1 task waits" if len(waiting) == 1 else f"{len(waiting):,} tasks wait"
    message = f"{number} for labels of some attempts; not counted until every attempt has one."
    return found, [{"code": "partly_labelled", "message": message}]


def _lines(result: Monitoring, decision: str, promised: str) -> Iterator[str]:
    """Say whether there is an alarm, and what it rests on."""
    if result.alarm:
        yield (
            f"Alarm on {decision} after {number_of(result.first_alarm_at or 0, 'task')}, at "
            f"{result.first_alarm_task}: issue a new certificate."
        )
    else:
        yield f"No alarm on {decision} after {number_of(result.tasks, 'task')}."
    low, high = map(percent, result.interval)
    yield (
        f"  Wrong: {result.errors:,} of {number_of(result.covered_trajectories, 'decided run')}; "
        f"the error is from {low} to {high}. Promised: {promised}."
    )
    state = result.e_process
    yield (
        f"  Evidence of a larger error (e-value): {state.value:.4g} now, "
        f"{state.largest:.4g} at its highest, alarm from {state.threshold:g}."
    )
    for finding in result.findings:
        yield f"  {finding['code']}: {finding['message']}"
