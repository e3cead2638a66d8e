"""Findings: what a reader of a certificate should know before relying on it, each with a code."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from certify_assets.certificates.certificate import Finding
from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.diagnosis import LACKS_PILOT, diagnose_evaluation
from certify_assets.certificates.evaluation import Evaluation, coverage_under, evaluate
from certify_assets.certificates.guard import largest_shares
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.pool import GIVEN, Pool
from certify_assets.certificates.settings import BONFERRONI, Settings
from certify_assets.certificates.task_sizes import POOL_TASKS, pseudo_task
from certify_assets.certificates.taskboot import draws_needed
from certify_assets.errors import quoted
from certify_assets.files import shortest
from certify_assets.names import spelled

#: below this many tasks neither the paper's simulation nor ours covers the bootstrap
FEW_TASKS = 20
_SATURATED = 0.05
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
#: scores of fewer values are verdicts or ratings, which have no log-odds
_FEWEST_VALUES = 10
_PAIR = 2
#: share of rows that repeat whole tasks
_COPIED = 0.05
#: … where each is of one row
_ALL_COPIED = 0.9
#: findings that the provenance of a certificate states, since no table can show them
RELABELLED, SHARED_TASKS = "relabelled_after_certificate", "accepted_shared_tasks"


def stated_findings(provenance: Mapping[str, str] | None) -> list[Finding]:
    """Return the findings that the provenance of a certificate states."""
    said = provenance or {}
    codes = (RELABELLED, SHARED_TASKS)
    return [{"code": code, "message": said[code]} for code in codes if said.get(code)]


def certificate_findings(
    observations: Observations,
    evaluation: Evaluation,
    settings: Settings,
    pool: Pool | None = None,
    *,
    pilot: Observations | None = None,
    repeats: int = 0,
    alone: bool = False,
) -> tuple[Finding, ...]:
    """Collect what is particular to the data; what every such certificate assumes is no finding.

    `repeats` counts rows that repeat an earlier one, where nothing says that they are other runs;
    `alone` says that the task of every row is the id of its run.
    """
    found = [
        *_table_findings(observations, evaluation, settings),
        *_row_findings(observations, repeats),
        *_name_findings(observations),
        *_task_findings(observations, alone=alone),
        *_ranking_findings(observations, evaluation, settings),
        *_chance_findings(observations, evaluation, settings, (pilot, pool)),
        *_size_findings(evaluation, settings),
        *_method_findings(settings),
        *_guard_findings(evaluation, settings),
        *_pool_findings(observations, evaluation, settings, pool),
    ]
    if evaluation.lacks_pilot:
        found.append(("pilot_missing", LACKS_PILOT))
    elif evaluation.chosen is None:
        text = diagnose_evaluation(observations, evaluation, settings).sentence
        found.append(("nothing_passes", text))
    return tuple({"code": code, "message": message} for code, message in found)


def _table_findings(
    observations: Observations, evaluation: Evaluation, settings: Settings
) -> Iterator[tuple[str, str]]:
    counts = evaluation.counts
    if observations.unscored:
        yield (
            "unscored_rows",
            f"{observations.unscored} of {observations.rows} rows have no score; they are left out "
            "here and go to human review when decided.",
        )
    if counts.tasks < FEW_TASKS and not settings.method.pilot:
        yield (
            "few_tasks",
            f"There are fewer than {FEW_TASKS} tasks ({counts.tasks}); the bootstrap has not been "
            "validated there.",
        )
    distinct = np.unique(counts.thresholds).size
    if distinct < counts.thresholds.size and settings.multiplicity == BONFERRONI:
        yield (
            "tied_grid",
            f"The {counts.thresholds.size} thresholds hold {distinct} distinct scores; the "
            "correction still counts them all.",
        )
    yield from _end_findings(observations)


def _end_findings(observations: Observations) -> Iterator[tuple[str, str]]:
    """Say that many scores share the lowest or the highest value."""
    ends, scores = observations.at_ends, observations.scores[: observations.scored]
    if ends < _PAIR or ends <= _SATURATED * scores.size:
        return
    values = np.unique(scores)
    # one or two values are verdicts, not a scale
    if values.size <= _PAIR:
        return
    lowest = np.count_nonzero(scores == scores[0]) == ends
    end = shortest(float(scores[0] if lowest else scores[-1]))
    said = f"{ends} of {scores.size} scores share the {'lowest' if lowest else 'highest'} value"
    gap = float(values[1] - values[0] if lowest else values[-1] - values[-2])
    others = values[1:] if lowest else values[:-1]
    # three grades are as far from each other
    spread = float(np.ptp(others)) * (1 if values.size > _FEWEST_VALUES else 2)
    if gap >= spread:
        yield (
            "saturated_scores",
            f"{said}, {end}, which is far from all others. If it stands for no score, leave it "
            "empty.",
        )
    elif scores[0] >= 0 and scores[-1] <= 1 and values.size > _FEWEST_VALUES:
        yield (
            "saturated_scores",
            f"{said}, {end}. Score by the log-odds, which do not saturate.",
        )


def _row_findings(observations: Observations, repeats: int) -> Iterator[tuple[str, str]]:
    if repeats:
        yield (
            "duplicate_rows",
            f"{repeats} of {observations.rows} rows repeat an earlier one, with the same task, "
            "score and outcome, and count again; drop them if they are the same run, or give every "
            "run its trajectory_id.",
        )


def _name_findings(observations: Observations) -> Iterator[tuple[str, str]]:
    if spelling := observations.spellings:
        one, other = next(iter(spelling.items()))
        yield (
            "similar_ids",
            f"{len({*spelling, *spelling.values()})} of {len(observations.labels)} task names "
            f"differ from another only in spelling, such as {spelled(other)} and {spelled(one)}. "
            "Count them as one task with --set ids=fold, or give them names of their own.",
        )


def _task_findings(observations: Observations, *, alone: bool) -> Iterator[tuple[str, str]]:
    """Say where rows may be counted as more tasks than there are."""
    labels, rows = observations.labels, observations.scored
    if rows < _FEWEST_ROWS:
        return
    single = len(labels) == observations.rows
    tasks = _numbered_tasks(labels) if single else 0
    if tasks or (single and alone):
        said = (
            f"their ids look like attempts of {tasks} tasks, such as {quoted(labels[0])}"
            if tasks
            else "every task has the id of its run"
        )
        yield (
            "one_run_a_task",
            f"Each of the {len(labels)} tasks has one row, and {said}. Write the task without the "
            "attempt where a task was run more than once; its rows then count as one task.",
        )
    copied = _copied_rows(observations)
    if copied > _COPIED * rows:
        yield (
            "copies_across_tasks",
            f"{copied} of {rows} rows belong to tasks that repeat another task in all scores and "
            "outcomes. Leave the copies out: they are no further evidence.",
        )
    scores, outcomes = observations.scores[:rows], observations.outcomes[:rows]
    if scores[0] < scores[-1] and (
        np.array_equal(np.where(outcomes == outcomes[-1], scores[-1], scores[0]), scores)
    ):
        yield (
            "scores_are_outcomes",
            f"The scores are {shortest(scores[0])} and {shortest(scores[-1])}, and each stands for "
            "one outcome: they may be a copy of the outcomes. Give the judge's own scores.",
        )


def _numbered_tasks(labels: Sequence[str]) -> int:
    """Count the tasks whose attempts ids number, each from 0 or 1 on; 0 where ids do not."""
    attempts: dict[str, set[int]] = {}
    for label in labels:
        if (found := _ATTEMPT.fullmatch(label)) is None:
            return 0
        attempts.setdefault(found[1], set()).add(int(found[2]))
    numbered = sum(
        1 < len(numbers) <= _MOST_ATTEMPTS and max(numbers) - min(numbers) < len(numbers)
        for numbers in attempts.values()
        if min(numbers) < _MOST_FIRST
    )
    enough = numbered >= max(_FEWEST_STEMS, _MOST_STEMS * len(attempts))
    return len(attempts) if enough else 0


def _copied_rows(observations: Observations) -> int:
    """Count the rows of tasks that repeat an earlier task by scores that no other task has."""
    rows = observations.scored
    scores, tasks = observations.scores[:rows], observations.tasks[:rows]
    tied = (scores[1:] == scores[:-1]) & (tasks[1:] != tasks[:-1])
    if np.count_nonzero(tied) <= _COPIED * rows:
        return 0
    content: dict[int, list[tuple[float, int]]] = {}
    triples = zip(
        tasks.tolist(), scores.tolist(), observations.outcomes[:rows].tolist(), strict=True
    )
    for task, score, outcome in triples:
        content.setdefault(task, []).append((score, outcome))
    often, times = Counter(map(tuple, content.values())), Counter(scores.tolist())
    copied, lone = 0, Counter[int]()
    for rows_of, copies in often.items():
        own = Counter(score for score, _ in rows_of)
        alike = any(times[score] == copies * number for score, number in own.items())
        if 1 < copies <= _MOST_COPIES and alike:
            if len(own) == 1:
                lone[copies] += len(rows_of) * copies
            elif len(content) * math.prod(times[score] / rows for score in own) < _BY_CHANCE:
                copied += len(rows_of) * (copies - 1)
    # one score may be shared by chance, but not by equally many tasks throughout
    number, most = lone.most_common(1)[0] if lone else (1, 0)
    return copied + (most - most // number if most > _ALL_COPIED * rows else 0)


def _ranking_findings(
    observations: Observations,
    evaluation: Evaluation,
    settings: Settings,
) -> Iterator[tuple[str, str]]:
    counts = evaluation.counts
    covered = counts.covered_trajectories.astype(np.float64)
    errors = counts.error_totals.astype(np.float64)
    rows, right = float(counts.trajectories), float(counts.successes.sum())
    wrong = right if settings.side == "reject" else rows - right
    if not 0 < right < rows:
        return
    # the curve through the grid says cheaply where the AUROC is worth its sum over all rows
    found = np.concatenate([[0.0], (covered - errors) / (rows - wrong), [1.0]])
    missed = np.concatenate([[0.0], errors / wrong, [1.0]])
    if float(np.trapezoid(found, missed)) > 0.5:
        return
    if counts.tasks < _FEWEST_REVERSED:
        return
    from scipy.special import stdtrit

    area, spread = observations.clustered_auroc
    # the standard error is estimated from the tasks, so the quantile is Student's
    if area + float(stdtrit(counts.tasks - 1, _REVERSED)) * spread < 0.5:
        yield (
            "scores_look_reversed",
            f"The AUROC is {area:.3f} (standard error {spread:.3f} over tasks), below .5 beyond "
            "chance: the scores look reversed, and higher must mean a success. Try "
            "--lower-is-better, or negate them.",
        )


def _chance_findings(
    observations: Observations,
    evaluation: Evaluation,
    settings: Settings,
    others: tuple[Observations | None, Pool | None],
) -> Iterator[tuple[str, str]]:
    """Say where any judge would get a certificate, and what a random one gets."""
    counts = evaluation.counts
    if evaluation.chosen is None:
        return
    rate = float(counts.successes.sum() / counts.trajectories)
    rate, what = (rate, "success") if settings.side == "reject" else (1 - rate, "failure")
    if rate > settings.alpha:
        return
    random = evaluate(observations.at_random(settings.seed), settings, *others)
    yield (
        "any_judge",
        f"The {what} rate {rate:.3f} is within alpha {settings.alpha:g}: any judge keeps the "
        f"budget on this side. Random scores are certified for {random.chosen_coverage:.3f} of the "
        f"runs, these for {evaluation.chosen_coverage:.3f}.",
    )


def _method_findings(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.coarse_draws:
        yield (
            "coarse_draws",
            f"{settings.draws} resamples cannot show a tail below 1/{settings.draws + 1}, so none "
            f"passes at level {settings.level:.3g}; at least {draws_needed(settings.level)} are "
            "needed, or the engine without draws (auto).",
        )


def _size_findings(evaluation: Evaluation, settings: Settings) -> Iterator[tuple[str, str]]:
    place, counts = evaluation.chosen, evaluation.counts
    if place is None:
        return
    if settings.method.estimand != "trajectory":
        yield from _weight_findings(counts, place, settings)
        return
    effective, needed = float(counts.effective_tasks[place]), n_min(settings.alpha, settings.delta)
    if effective < needed:
        yield (
            "few_effective_tasks",
            f"The {counts.covered_tasks[place]} covered tasks weigh as much as {effective:.1f} of "
            f"equal size (Kish); {needed} are needed to exclude tasks that are wrong throughout at "
            f"error alpha {settings.alpha:g}.",
        )
    covered = counts.covered[place]
    largest, median = int(covered.max()), float(np.median(covered[covered > 0]))
    pseudo = evaluation.test.pseudo
    supposed = settings.size_ratio if pseudo is None else float(pseudo.ratios[place])
    if largest >= _LARGE_RATIO * median and supposed < largest / median:
        yield (
            "unequal_tasks",
            f"The largest covered task has {largest} covered trajectories, {largest / median:.3g} "
            f"times the median of {median:g} and {100 * float(largest_shares(counts)[place]):.1f} "
            "% of all; cap the attempts a task, or declare size_ratio.",
        )


def _weight_findings(
    counts: TaskCounts, place: int, settings: Settings
) -> Iterator[tuple[str, str]]:
    """What an error in which every task weighs the same does not say of trajectories."""
    error = float(counts.selective_error[place])
    if error > settings.alpha:
        yield (
            "trajectory_error_above",
            f"Over trajectories the error seen is {error:.3f}, above alpha {settings.alpha:g}: "
            "tasks with more attempts are wrong more often, and the "
            "promise weighs every task the same.",
        )
    largest, median = int(counts.sizes.max()), float(np.median(counts.sizes))
    if settings.method.pilot and largest >= _LARGE_RATIO * median:
        yield (
            "unequal_tasks",
            f"The largest task has {largest} trajectories, {largest / median:.3g} times the median "
            f"of {median:g}, and weighs no more than any other.",
        )


def _pool_findings(
    observations: Observations,
    evaluation: Evaluation,
    settings: Settings,
    pool: Pool | None,
) -> Iterator[tuple[str, str]]:
    pseudo = evaluation.test.pseudo
    if pool is None or pseudo is None:
        return
    if pool.origin == GIVEN:
        yield (
            "hand_picked",
            f"The {len(pool.labels)} tasks of the pool were given by hand: the size ratio holds if "
            "they are every task that is not in the calibration table, not a choice of them.",
        )
    if pool.unscored:
        yield (
            "unscored_pool_rows",
            f"{pool.unscored} of {pool.scores.size} rows of the pool have no score; they count for "
            "no size.",
        )
    counts = evaluation.counts
    alone = pseudo_task(observations, counts, settings, None)
    place = counts.thresholds.size - 1 if evaluation.chosen is None else evaluation.chosen
    if not pseudo.charged:
        yield (
            "few_pool_tasks",
            f"{pool.scored_tasks} tasks of the pool have a score; from {POOL_TASKS} on, tasks so "
            "large that the calibration tasks say too little of them would be charged.",
        )
    elif pseudo.charges[place] > 0:
        yield (
            "size_charge",
            f"{pseudo.charges[place]:.3g} of the covered trajectories count as wrong, because the "
            "calibration tasks say too little of tasks as large as theirs.",
        )
    before, after = float(alone.ratios[place]), float(pseudo.ratios[place])
    if f"{before:.3g}" == f"{after:.3g}":
        return
    coverages = [coverage_under(other, evaluation, settings) for other in (alone, pseudo.equal)]
    yield (
        "pool_size_ratio",
        f"The pool {'raises' if after > before else 'lowers'} the size ratio of wrong tasks from "
        f"{before:.3g} to {after:.3g} (coverage {coverages[0]:.3f} without the pool, "
        f"{evaluation.chosen_coverage:.3f} with it); equally many attempts at every task, a ratio "
        f"of 1, would have given {coverages[1]:.3f}.",
    )


def _guard_findings(evaluation: Evaluation, settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.applied_guard == "none":
        return
    counts, guard = evaluation.counts, evaluation.guard
    widest = -1 if evaluation.chosen is None else evaluation.chosen
    blocked = np.flatnonzero(evaluation.passed_test & ~guard.passed)
    if blocked.size and blocked[-1] > widest:
        place = int(blocked[-1])
        seen = (
            f"coverage {counts.coverage[place]:.3f} from {counts.covered_tasks[place]} tasks "
            "passes the bootstrap"
        )
        if guard.floor_probability[place] <= guard.limit:
            share = (
                f"the largest task has {100 * float(largest_shares(counts)[place]):.1f} % of the "
                "covered trajectories"
            )
            why = (
                f"{share} and all weigh as much as {counts.effective_tasks[place]:.1f} of equal "
                "size, too few for resampling tasks to tell"
            )
            yield "guard_concentration_blocked", f"{seen}, not the guard: {why}."
        else:
            floor = f"{guard.floor_probability[place]:.3g} > {guard.limit:.3g}"
            why = f"error-free data would have probability {floor} at error-ICC {guard.icc:.3f}"
            yield "guard_floor_blocked", f"{seen}, not the floor: {why}."
