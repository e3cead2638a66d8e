"""Findings: what a reader of a certificate should know before relying on it, each with a code.

`SENTENCES` has a sentence for each code. Its fields are figures of the table (rows), of the
settings, and of the task counts: at all thresholds (counts) and at the certified one (at). The
functions below it say when a finding holds. The assumptions of a procedure are not findings.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from certify_assets.arrays import Floats
from certify_assets.certificates.certificate import Finding
from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.counts import TaskCounts, covers
from certify_assets.certificates.diagnosis import FEW_TASKS, diagnose_evaluation
from certify_assets.certificates.evaluation import Evaluation
from certify_assets.certificates.evidence import Evidence
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.task_sizes import POOL_TASKS
from certify_assets.errors import quoted
from certify_assets.files import shortest
from certify_assets.names import spelled

#: findings that the provenance of a certificate states, since no table can show them
RELABELLED, SHARED_TASKS = "relabelled_after_certificate", "accepted_shared_tasks"
_STATED = (RELABELLED, SHARED_TASKS)

_SATURATED = 0.05
#: scores of fewer values are verdicts or ratings, which have no log-odds
_FEWEST_VALUES = 10
#: one-sided confidence with which an AUROC is below one half where scores are called reversed
_REVERSED = 0.99
#: a standard error over fewer tasks is too uncertain for that
_FEWEST_REVERSED = 10
#: from this ratio on, wrong tasks that are larger than others have been seen to break every guard
_LARGE_RATIO = 5.0
#: fewest rows in which ids or copies say something
_FEWEST_ROWS = 20
#: attempts that ids of one task number, and copies of a task
_MOST_ATTEMPTS, _MOST_COPIES = 64, 8
_ATTEMPT = re.compile(
    r"(.+?)[/#:_.\- ]+(?:attempt|run|trial|try|rep|repeat|epoch|seed)?-?(\d{1,3})"
    r"(?:-of-\d{1,3})?"
)
#: attempts are numbered from 0 or 1, in at least so many tasks and this share of them
_MOST_FIRST, _FEWEST_STEMS, _MOST_STEMS = 2, 10, 0.8
#: tasks that share as many scores are copies where chance gives fewer such tasks than this
_BY_CHANCE = 0.01
#: share of rows that repeat whole tasks, and that share where each task has one row
_COPIED, _ALL_COPIED = 0.05, 0.9

SENTENCES = {
    "unscored_rows": "{table.unscored} of {table.rows} rows have no score. They are {how} and go "
    "to review when decided.",
    "few_tasks": "The table has {tasks_seen}. The bootstrap has not been validated below {least}.",
    "saturated_scores": "{rows.at_ends} of {rows.scored} scores share the {end} value, {value}. "
    "{remedy}",
    "duplicate_rows": "{repeats} of {rows.rows} rows repeat an earlier one, with the same task, "
    "score and outcome. Drop them if they are the same run, or give every run its trajectory_id.",
    "similar_ids": "{alike} of {tasks} task names differ from another only in spelling, such as "
    "{other} and {one}. Count them as one task with --set ids=fold, or rename them.",
    "one_run_a_task": "Each of the {counts.tasks} tasks has one row, and {why}. If a task was run "
    "more than once, write it without the attempt: its rows then count as one task.",
    "grouped": "{grouped} tasks lie in {counts.tasks} groups. Each group counts as one task here, "
    "because its tasks may err together.",
    "copies_across_tasks": "{copied} of {rows.scored} rows belong to tasks that repeat another "
    "task in all scores and outcomes. Leave the copies out: they are no further evidence.",
    "scores_are_outcomes": "The scores are {low} and {high}, and each stands for one outcome. They "
    "may be a copy of the outcomes; give the judge's own scores.",
    "scores_look_reversed": "The AUROC is {area:.3f} (standard error {spread:.3f} over tasks), "
    "below .5 beyond chance. A higher score must mean a success: {remedy} "
    "--set lower_is_better=true.",
    "judge_flickers": "{twice} runs have a second score of the same judge. It would change the "
    "decision of {flips} of them on this side ({share:.1f} %).",
    "any_judge": "The {what} rate {rate:.3f} is within alpha {settings.alpha:g}, so any judge "
    "keeps the budget on this side, and random scores do.",
    "few_effective_tasks": "The {at.covered_tasks[0]} covered tasks weigh as much as "
    "{at.effective_tasks[0]:.1f} of equal size (Kish). To exclude tasks that are wrong throughout, "
    "{needed} are needed at alpha {settings.alpha:g}.",
    "unequal_tasks": "The largest covered task has {at.largest[0]} runs, {ratio:.3g} times the "
    "median of {median:g}. Cap the attempts a task, or declare size_ratio.",
    "guard_floor_blocked": "Coverage {wider.coverage[0]:.3f} passes the bootstrap, not the guard: "
    "its {wider.covered_tasks[0]} tasks, which weigh as much as {wider.effective_tasks[0]:.1f} of "
    "equal size, are too few.",
    "few_pool_tasks": "{pool.scored_tasks} tasks of the pool have a score. From {least} on, tasks "
    "larger than those of the calibration table would be charged.",
    "size_charge": "{charge:.3g} of the covered trajectories count as wrong, because the "
    "calibration tasks say too little of tasks as large as theirs.",
    "pilot_missing": "{why}",
    "nothing_passes": "{why}",
}
#: the code of a finding that holds, with the fields that are no figure of the case
_Found = Iterator[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class _Case:
    """The data that findings are computed from."""

    given: Evidence
    #: rows of the table that have an outcome
    rows: Observations
    evaluation: Evaluation
    settings: Settings

    @property
    def counts(self) -> TaskCounts:
        return self.evaluation.counts

    @property
    def place(self) -> int:
        """The certified threshold, the widest of the grid where there is none."""
        chosen = self.evaluation.chosen
        return self.counts.thresholds.size - 1 if chosen is None else chosen


def certificate_findings(
    given: Evidence, evaluation: Evaluation, settings: Settings
) -> tuple[Finding, ...]:
    """Return the findings of the provenance and of the data of a certificate."""
    known, grouped = given.table.labelled, given.names.get("grouped")
    case = _Case(given, known, evaluation, settings)
    figures = {
        "table": given.table,
        "rows": known,
        "counts": case.counts,
        "at": case.counts.at(case.place),
        "settings": settings,
        "pool": given.pool,
        "repeats": given.repeats,
        "grouped": grouped,
    }
    found = [
        *_of_the_table(case),
        *([("duplicate_rows", {})] if given.repeats else []),
        *_of_the_tasks(case),
        *([("grouped", {})] if grouped else []),
        *_of_the_ranking(case),
        *_of_the_judge(case),
        *_of_the_certificate(case),
        *_of_the_guard(case),
        *_of_the_pool(case),
    ]
    if evaluation.chosen is None:
        why = diagnose_evaluation(known, evaluation, settings).sentence
        code = "pilot_missing" if evaluation.lacks_pilot else "nothing_passes"
        found.append((code, {"why": why}))
    seen = {code: SENTENCES[code].format_map(figures | fields) for code, fields in found}
    said = {code: given.names[code] for code in _STATED if given.names.get(code)}
    return tuple({"code": code, "message": words} for code, words in (said | seen).items())


def _of_the_table(case: _Case) -> _Found:
    counts, settings = case.counts, case.settings
    if case.given.table.unscored:
        how = "counted as never decided" if settings.method.by_rows else "left out here"
        yield "unscored_rows", {"how": how}
    # neither a bet nor a proof rests on the bootstrap
    proved = settings.method.pilot or settings.method.by_rows
    if counts.tasks < FEW_TASKS and not proved:
        seen = f"{counts.tasks} task{'s' * (counts.tasks != 1)}"
        yield "few_tasks", {"least": FEW_TASKS, "tasks_seen": seen}
    yield from _of_the_ends(case.rows)


def _of_the_ends(rows: Observations) -> _Found:
    """Say that many scores share the lowest or the highest value."""
    scores, *_ = rows.scored_rows
    if rows.at_ends <= max(1, _SATURATED * scores.size):
        return
    values = np.unique(scores)
    # one or two values are verdicts, not a scale
    if values.size <= 2:
        return
    # seen from the end that they share
    end, ordered = "highest", values[::-1]
    if np.count_nonzero(scores == values[0]) == rows.at_ends:
        end, ordered = "lowest", values
    fine = values.size > _FEWEST_VALUES
    # three grades are as far from each other
    if abs(ordered[1] - ordered[0]) >= np.ptp(ordered[1:]) * (1 if fine else 2):
        remedy = "It is far from all others. If it stands for no score, leave it empty."
    elif fine and values[0] >= 0 and values[-1] <= 1:
        remedy = "Score by the log-odds, which do not saturate."
    else:
        return
    value = shortest(ordered[0])
    yield "saturated_scores", {"end": end, "value": value, "remedy": remedy}


def _of_the_tasks(case: _Case) -> _Found:
    """Say where rows may be counted as more tasks than there are."""
    rows, labels = case.rows.scored, case.rows.labels
    if spelling := case.rows.spellings:
        one, other = next(iter(spelling.items()))
        yield (
            "similar_ids",
            {
                "alike": len({*spelling, *spelling.values()}),
                "tasks": len(labels),
                "one": spelled(one),
                "other": spelled(other),
            },
        )
    if rows < _FEWEST_ROWS:
        return
    if len(labels) == case.rows.rows:
        if tasks := _numbered_tasks(labels):
            why = f"their ids look like attempts of {tasks} tasks, such as {quoted(labels[0])}"
            yield "one_run_a_task", {"why": why}
        elif case.given.alone:
            yield "one_run_a_task", {"why": "every task has the id of its run"}
    copied = _copied_rows(case.rows)
    if copied > _COPIED * rows:
        yield "copies_across_tasks", {"copied": copied}
    scores, outcomes, _ = case.rows.scored_rows
    copy = np.where(outcomes == outcomes[-1], scores[-1], scores[0])
    if scores[0] < scores[-1] and np.array_equal(copy, scores):
        ends = {"low": shortest(scores[0]), "high": shortest(scores[-1])}
        yield "scores_are_outcomes", ends


def _numbered_tasks(labels: tuple[str, ...]) -> int:
    """Count the tasks whose attempts ids number, each from 0 or 1 on; 0 where ids do not."""
    attempts: dict[str, set[int]] = {}
    for label in labels:
        if (found := _ATTEMPT.fullmatch(label)) is None:
            return 0
        attempts.setdefault(found[1], set()).add(int(found[2]))
    numbered = sum(
        min(numbers) < _MOST_FIRST
        and 1 < len(numbers) <= _MOST_ATTEMPTS
        and max(numbers) - min(numbers) < len(numbers)
        for numbers in attempts.values()
    )
    return len(attempts) if numbered >= max(_FEWEST_STEMS, _MOST_STEMS * len(attempts)) else 0


def _copied_rows(table: Observations) -> int:
    """Count the rows of tasks that repeat an earlier task by scores that no other task has."""
    rows, (scores, outcomes, tasks) = table.scored, table.scored_rows
    tied = (scores[1:] == scores[:-1]) & (tasks[1:] != tasks[:-1])
    if np.count_nonzero(tied) <= _COPIED * rows:
        return 0
    content: dict[int, list[tuple[float, int]]] = {}
    columns = (tasks.tolist(), scores.tolist(), outcomes.tolist())
    for task, score, outcome in zip(*columns, strict=True):
        content.setdefault(task, []).append((score, outcome))
    times = Counter(columns[1])
    copied, lone = 0, Counter[int]()
    for runs, copies in Counter(map(tuple, content.values())).items():
        own = Counter(score for score, _ in runs)
        alike = any(times[score] == copies * number for score, number in own.items())
        if not alike or not 1 < copies <= _MOST_COPIES:
            continue
        if len(own) == 1:
            lone[copies] += len(runs) * copies
        elif len(content) * math.prod(times[score] / rows for score in own) < _BY_CHANCE:
            copied += len(runs) * (copies - 1)
    # one score may be shared by chance, but not by equally many tasks throughout
    number, most = lone.most_common(1)[0] if lone else (1, 0)
    return copied + (most - most // number if most > _ALL_COPIED * rows else 0)


def _of_the_ranking(case: _Case) -> _Found:
    counts = case.counts
    rows, right = counts.trajectories, int(counts.successes.sum())
    if counts.tasks < _FEWEST_REVERSED or not 0 < right < rows:
        return
    # the curve through the grid says cheaply where the AUROC is worth its sum over all rows
    wrong = right if case.settings.side == "reject" else rows - right
    found = (counts.covered_trajectories - counts.error_totals) / (rows - wrong)
    kept, missed = ([0.0, *part, 1.0] for part in (found, counts.error_totals / wrong))
    # labels of drawn runs may be of one class, where runs without a label count as wrong
    if np.trapezoid(kept, missed) > 0.5 or case.rows.auroc is None:
        return
    from scipy.special import stdtrit

    area, spread = case.rows.clustered_auroc
    # the standard error is estimated from the tasks, so the quantile is Student's
    if area + float(stdtrit(counts.tasks - 1, _REVERSED)) * spread < 0.5:
        turned = case.given.names.get("lower_is_better") == "true"
        remedy = "leave out" if turned else "try"
        yield "scores_look_reversed", {"area": area, "spread": spread, "remedy": remedy}


def _of_the_judge(case: _Case) -> _Found:
    place = case.evaluation.chosen
    if case.given.again is not None and place is not None:
        threshold = float(case.counts.thresholds[place])
        yield from flickers(case.settings.side, threshold, *case.given.again)


def flickers(side: str, threshold: float, first: Floats, second: Floats) -> _Found:
    """Yield the finding on runs that a judge scored twice, where there are any."""
    twice = np.isfinite(first) & np.isfinite(second)
    number = int(np.count_nonzero(twice))
    if number:
        flips = covers(side, threshold, first[twice]) != covers(side, threshold, second[twice])
        count = int(np.count_nonzero(flips))
        yield "judge_flickers", {"twice": number, "flips": count, "share": 100 * count / number}


def _of_the_certificate(case: _Case) -> _Found:
    counts, settings, place = case.counts, case.settings, case.evaluation.chosen
    if place is None:
        return
    rate, what = float(counts.successes.sum() / counts.trajectories), "success"
    if settings.side == "release":
        rate, what = 1 - rate, "failure"
    if rate <= settings.alpha:
        yield "any_judge", {"rate": rate, "what": what}
    if settings.method.estimand != "trajectory":
        return
    needed = n_min(settings.alpha, settings.delta)
    if counts.effective_tasks[place] < needed:
        yield "few_effective_tasks", {"needed": needed}
    covered, pseudo = counts.covered[place], case.evaluation.test.pseudo
    median = float(np.median(covered[covered > 0]))
    ratio = int(covered.max()) / median
    supposed = settings.size_ratio if pseudo is None else float(pseudo.ratios[place])
    if ratio >= _LARGE_RATIO and ratio > supposed:
        yield "unequal_tasks", {"ratio": ratio, "median": median}


def _of_the_guard(case: _Case) -> _Found:
    """Say where a wider threshold passes the bootstrap and not the guard."""
    chosen = -1 if case.evaluation.chosen is None else case.evaluation.chosen
    blocked = np.flatnonzero(case.evaluation.passed_test & ~case.evaluation.guarded)
    if blocked.size and blocked[-1] > chosen:
        yield "guard_floor_blocked", {"wider": case.counts.at(int(blocked[-1]))}


def _of_the_pool(case: _Case) -> _Found:
    pseudo = case.evaluation.test.pseudo
    if case.given.pool is None or pseudo is None:
        return
    if not pseudo.charged:
        yield "few_pool_tasks", {"least": POOL_TASKS}
    if pseudo.charges[case.place] > 0:
        yield "size_charge", {"charge": pseudo.charges[case.place]}
