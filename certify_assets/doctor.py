"""What score tables and logs hold, and the strongest answer that they allow: ``certify doctor``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.certificates import settings_of
from certify_assets.certificates.certifier import Certifier
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.ladder import Rung, issue, next_rung
from certify_assets.certificates.planning import Planner
from certify_assets.certificates.procedures import AVERAGE, CONFIDENT, PROMISED, PROVED
from certify_assets.certificates.settings import Settings
from certify_assets.corpora.judged import (
    JUDGE,
    TRUTH,
    JudgedRuns,
    has_runs,
    is_log,
    kind_by_name,
    read_judged,
)
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError, UnfitTableError, UnlabelledRunError
from certify_assets.tables.cells import TableError, likely_column, number_of
from certify_assets.tables.drawn import DrawnFile, filled
from certify_assets.tables.reading import matched, read_table
from certify_assets.tables.run_labels import RunLabels, reading_of_scores, require_ids
from certify_assets.tables.score_table import ScoreTable, read_score_table
from certify_assets.tables.settings import COLUMNS, ReadingOptions

if TYPE_CHECKING:
    from certify_assets.certificates import CertificateSet

#: what a report calls a table without runs
_SCORE_TABLE: Final = "score table"
#: budgets that are tried, the stricter first
BUDGETS: Final = (0.1, 0.2)
#: success rate and AUROC that are taken where no label tells them
GUESS: Final = (0.5, 0.8)
#: labelled runs of each outcome from which on they tell them
_TELLING: Final = 5
#: tasks of which runs are drawn at first, at most
MOST_TASKS: Final = 400
#: larger draws that are planned, as multiples of the first one
_MORE: Final = (2, 4)
#: draws of fewer attempts pay where they decide so large a part of what others decide
_PAYS: Final = 0.8
#: chance of deciding anything below which a draw is not offered
_HOPELESS: Final = 0.2
#: chance from which on a budget is in reach
_LIKELY: Final = 0.5
#: most labelled runs a task that are planned
_MOST_ATTEMPTS: Final = 4


@dataclass(frozen=True)
class JudgeAnswer:
    """One judge: its table, and what is certified at each of `BUDGETS`.

    Parameters
    ----------
    name : str
        Column, scorer, feedback or assessment.
    table : ScoreTable
        All runs; outcomes are −1 where a run has no label, or None without any.
    auroc : float or None
        Of the labelled runs; None without labels of both outcomes.
    issued : tuple of CertificateSet
        By budget; empty where there are too few labels for any promise.
    rung : Rung or None
        The next promise and its cost, where nothing is certified.
    """

    name: str
    table: ScoreTable
    auroc: float | None = None
    issued: tuple[CertificateSet, ...] = ()
    rung: Rung | None = None

    @property
    def decided(self) -> tuple[float, ...]:
        """The share of runs that needs no review, by budget."""
        return tuple(found.sides.decided for found in self.issued)

    @property
    def labelled(self) -> int:
        """The number of labelled runs."""
        outcomes = self.table.outcomes
        return 0 if outcomes is None else int(np.count_nonzero(outcomes >= 0))

    def to_dict(self) -> JsonObject:
        """Return name, AUROC, labelled runs and the decided share by budget."""
        decided = {f"{a:g}": share for a, share in zip(BUDGETS, self.decided, strict=False)}
        return {
            "name": self.name,
            "auroc": self.auroc,
            "labelled": self.labelled,
            "decided": decided,
        }


@dataclass(frozen=True)
class DrawPlan:
    """What labelling some runs is expected to give.

    Parameters
    ----------
    tasks, attempts, labels : int
        Drawn tasks, labelled runs of each, and labels in all.
    promise : str
    decided : tuple of float
        Expected share of runs that needs no review, by budget.
    chance : tuple of float
        Probability that anything is certified, by budget.
    """

    tasks: int
    attempts: int
    labels: int
    promise: str
    decided: tuple[float, ...]
    chance: tuple[float, ...]


@dataclass(frozen=True)
class DoctorReport:
    """What was found, and the strongest answer.

    Parameters
    ----------
    title : str
        What was read, in words.
    found : mapping
        Runs, tasks, attempts, agents, judges, truths and labelled runs.
    judges : tuple of JudgeAnswer
        Those that were compared, the best first.
    truth : str or None
        The column of outcomes.
    columns : mapping of str to str
        Columns that were found under other names, by field.
    plans : tuple of DrawPlan
        Draws of runs to label, where nothing is certified.
    guess : tuple of two floats
        Success rate and AUROC that the plans assume.
    notes : tuple of str
        What was understood.
    obstacle : str
        What has to be settled before there is any answer.
    hidden : tuple of str
        Columns that say what is thought of a run, which a reviewer is not to see.
    """

    title: str
    found: Mapping[str, Any]
    judges: tuple[JudgeAnswer, ...] = ()
    truth: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    plans: tuple[DrawPlan, ...] = ()
    guess: tuple[float, float] = GUESS
    notes: tuple[str, ...] = ()
    obstacle: str = ""
    hidden: tuple[str, ...] = ()

    @property
    def has_runs(self) -> bool:
        """Whether the runs themselves were read, not a table of their scores."""
        return self.title != _SCORE_TABLE

    def to_dict(self) -> JsonObject:
        """Return the report as JSON values, without what is written or done next."""
        best = self.best
        issued = best.issued if best else ()
        return {
            "found": self.found,
            "answer": self.answer,
            "decided": next((share for share in (best.decided if best else ()) if share), 0.0),
            "certificates": [item.to_dict() for one in issued for item in one.certificates],
            "judges": [one.to_dict() for one in self.judges],
            "plans": [vars(plan) for plan in self.plans],
            "notes": [*self.notes],
            **({"obstacle": self.obstacle} if self.obstacle else {}),
        }

    @property
    def best(self) -> JudgeAnswer | None:
        """The judge that decides most."""
        return self.judges[0] if self.judges else None

    @property
    def answer(self) -> str:
        """Which answer there is: certificate, label or nothing."""
        if self.best and any(self.best.decided):
            return "certificate"
        return "label" if self.plan else "nothing"

    @property
    def plan(self) -> DrawPlan | None:
        """The draw with the fewest labels that pay; None where no draw has a chance."""
        hopeful = [plan for plan in self.plans if max(plan.chance) >= _HOPELESS]
        if not hopeful:
            return None
        # of the stricter budget where it is in reach
        place = 0 if max(plan.chance[0] for plan in hopeful) >= _LIKELY else 1
        most = max(plan.decided[place] for plan in hopeful)
        return next(plan for plan in hopeful if plan.decided[place] >= _PAYS * most)


def diagnose(
    paths: Sequence[Path],
    *,
    labels: Path | None = None,
    judge: str | None = None,
    truth: str | None = None,
    reading: ReadingOptions | None = None,
) -> DoctorReport:
    """Say what tables or logs hold, and what share of their runs a judge may decide.

    Parameters
    ----------
    paths : sequence of Path
        One score table, or logs of one format: files, folders and archives.
    labels : Path, optional
        Labels by trajectory_id, in place of outcomes; perhaps in the file of a draw.
    judge, truth : str, optional
        Columns, scorers, feedback or assessments that are score and outcome. By default all judges
        are compared, and δ is divided by their number.
    reading : ReadingOptions, optional
        How tables are read.

    Raises
    ------
    InputError
        If nothing can be read, or a name or label is wrong.
    """
    reading = reading or ReadingOptions()
    whole = reading_of_scores(paths[0], labels, reading) if len(paths) == 1 else reading
    runs, columns = _opened(paths, whole, judge)
    judges = _names(runs, JUDGE, judge)
    truths = [] if labels is not None else _names(runs, TRUTH, truth)
    # what one option names is nothing else
    if judge is None and truth is not None:
        judges = [name for name in judges if name != truth]
    elif truth is None and judge is not None:
        truths = [name for name in truths if name not in judges] or truths
    if same := {*judges} & {*truths}:
        raise InputError(
            f"{min(same)!r} cannot be both the score and the outcome. Name another column with "
            "--judge or --truth."
        )
    outcome = truths[0] if len(truths) == 1 else None
    asked = replace(whole, columns={**whole.columns, **columns})
    known = drawn = None
    if labels is not None:
        known = RunLabels.read(labels, reading)
        drawn = None if known.waiting is None else DrawnFile.read(labels, reading)
        if drawn and not drawn.labelled:
            raise InputError(f"{labels} holds no label yet. Fill in its column outcome.")
    tables, notes = _tables(runs, judges, outcome, asked, known, drawn=drawn)
    if known is not None and tables:
        notes = [*_about_labels(known, next(iter(tables.values()))), *notes]
    report = DoctorReport(
        runs.title,
        _found(runs, tables, outcome, asked.columns),
        truth=outcome,
        columns=columns,
        notes=(*notes, *runs.notes) if known else (*runs.notes, *notes),
        obstacle=_obstacle(judges, truths, tables),
        hidden=(*runs.kinds, *judges, *truths, {**COLUMNS, **reading.columns}["again"]),
    )
    if report.obstacle:
        return report
    try:
        answers = [_answer(name, table, len(tables), drawn) for name, table in tables.items()]
    except UnlabelledRunError:
        raise InputError(
            f"{labels} is the file of a draw and has too few labels. Label its next batch, then "
            "ask again."
        ) from None
    answers.sort(key=lambda one: (*(-share for share in one.decided), -(one.auroc or 0)))
    best, table = answers[0], answers[0].table
    success_rate, auroc = guess = _guess(best)
    report = replace(report, judges=tuple(answers), guess=guess)
    # where most runs have a label, more labels of them do not help
    if report.answer == "certificate" or drawn is not None or 2 * best.labelled > len(table):
        return report
    planner = Planner.of(table.scores, table.tasks, success_rate=success_rate, auroc=auroc)
    return replace(report, plans=tuple(_plans(planner)))


def _about_labels(known: RunLabels, table: ScoreTable) -> Iterator[str]:
    yield known.matching(table)
    if (agreement := known.agreement(table)) is not None:
        yield agreement.sentence()
    yield from (f"{known.path.name}: {words}" for words in known.read_as)


def _opened(
    paths: Sequence[Path], reading: ReadingOptions, judge: str | None
) -> tuple[JudgedRuns, dict[str, str]]:
    """Return logs or a table with the kinds of their columns, and columns by other names."""
    named = [reading.columns[one] for one in ("task", "score") if one in reading.columns]
    if len(paths) == 1 and paths[0].is_file() and not is_log(paths[0], named):
        return _of_table(paths[0], reading, judge)
    if table := next((path for path in paths if path.is_file() and not is_log(path)), None):
        raise InputError(
            f"{table} is not a log of a known format, and only one score table is read at a time. "
            "If it holds labels, give it with --labels."
        )
    return read_judged(paths), {}


def _of_table(
    path: Path, reading: ReadingOptions, judge: str | None
) -> tuple[JudgedRuns, dict[str, str]]:
    """Return a score table with the kinds of its columns; find names and scores by their words."""
    usual = {**COLUMNS, **reading.columns}
    # of a workbook the sheet that has them
    every = read_table(path, set(usual.values()))
    names = [name for name in every.names if name]
    if names and not len(every):
        raise InputError(f"{path} has a header but no rows. Write one row for each trajectory.")
    table, columns = read_table(path, set(names)), dict[str, str]()
    there = {one: found[0] for one in usual if (found := [*matched(names, {usual[one]}).values()])}
    repeated = []
    if "task" not in {*there, *reading.columns}:
        # a column that names tasks repeats its values, one that names runs does not
        repeated = [name for name in names if len({*map(str, table.values(name))}) < len(table)]
    for one, likely in (("task", repeated), ("task", names), ("id", names), ("agent", names)):
        if one not in {*there, *columns, *reading.columns}:
            columns |= likely_column(one, likely, [*there.values(), *columns.values()])
    notes = [f"column {name!r} of {path.name} as {COLUMNS[one]}" for one, name in columns.items()]
    if "task" not in {*there, *columns, *reading.columns}:
        # runs of one task that count as tasks of their own would promise too much
        run = there.get("id") or columns.get("id")
        own = f", or task={run} if every run has its own task" if run else ""
        raise InputError(
            f"Which column of {path} names the tasks is unclear; its columns are "
            f"{', '.join(names[:12]) or 'none'}. Name it with --columns task=NAME{own}."
        )
    used = {*columns.values(), *(there[one] for one in there if one not in ("score", "outcome"))}
    kinds = {
        there[one]: kind for one, kind in (("score", JUDGE), ("outcome", TRUTH)) if one in there
    }
    others = {name: kind_by_name(name) for name in names if name not in used and name not in kinds}
    known = {*kinds.values()}
    for name, kind in others.items():
        # a score or outcome that is named as such leaves no doubt
        if not kind or kind in known or name not in table.columns:
            continue
        if kind == TRUTH or all(map(_is_number, table.values(name))):
            kinds[name] = kind
    has_score = judge is not None or JUDGE in kinds.values()
    title = "table of runs" if not has_score and has_runs(path) else _SCORE_TABLE
    return JudgedRuns(path, kinds, title, notes=tuple(notes)), columns


def _is_number(cell: Any) -> bool:
    """Whether a cell may be a number, perhaps with a decimal comma; reading the column decides."""
    return number_of(cell.replace(",", ".") if isinstance(cell, str) else cell) is not None


def _names(runs: JudgedRuns, kind: str, name: str | None) -> list[str]:
    """Return the columns of a kind, or the one that is named."""
    if name is None:
        return [column for column, found in runs.kinds.items() if found == kind]
    if not isinstance(runs.source, Path):
        return [str(runs.named(kind, name))]
    # a table may have a score or an outcome under any name
    names = read_table(runs.source, {name}).names
    if not matched(names, {name}):
        raise InputError(
            f"{runs.source} has no column {name!r}; its columns are {', '.join(names[:12])}. "
            f"Name one of these with --{kind}."
        )
    return [name]


def _tables(
    runs: JudgedRuns,
    judges: Sequence[str],
    outcome: str | None,
    reading: ReadingOptions,
    labels: RunLabels | None,
    *,
    drawn: DrawnFile | None,
) -> tuple[dict[str, ScoreTable], list[str]]:
    """Return the table of every judge; note judges whose scores are no numbers."""
    tables, notes = dict[str, ScoreTable](), list[str]()
    fields = [one for one in COLUMNS if one not in ("annotator", "outcome")]
    fields += ["outcome"] if outcome is not None else []
    for judge in judges:
        names = runs.columns_of(judge) | ({"outcome": outcome} if outcome is not None else {})
        asked = replace(reading, columns={**reading.columns, **names})
        try:
            table = read_score_table(runs.source, asked, fields=fields).choose_split("cal")
            if drawn is not None:
                # one of the scores was drawn from
                drawn.rows_of(table)
        except TableError as refused:
            if len(judges) == 1:
                raise
            notes.append(f"{judge} left out: {refused.problems[0]}")
            continue
        except InputError:
            if drawn is None or (judge == judges[-1] and not tables):
                raise
            continue
        notes += [] if tables else table.read_as
        if labels is not None:
            require_ids(table)
            table = labels.join_alone(table) if drawn is None else labels.join(table)
        table.refuse_part_of_draw()
        tables[judge] = table
        notes += _scale(judge, table)
    return tables, notes


def _scale(judge: str, table: ScoreTable) -> Iterator[str]:
    """Say how scores are read that are neither probabilities nor log-odds, such as grades."""
    known = table.score_range
    if known and "lower_is_better" not in table.reading and known["low"] >= 0 and known["high"] > 1:
        yield f"{judge} from {known['low']:g} to {known['high']:g}, and higher is better"


def _found(
    runs: JudgedRuns,
    tables: Mapping[str, ScoreTable],
    outcome: str | None,
    columns: Mapping[str, str],
) -> JsonObject:
    """Count what there is."""
    judges = [name for name in _names(runs, JUDGE, None) if name != outcome]
    truths = [name for name in _names(runs, TRUTH, None) if name not in tables]
    if len(truths) > 1:
        # which is proposed
        truths.sort(key=lambda name: -filled(runs.source, name))
    if tables:
        table = next(iter(tables.values()))
        tasks, agents = table.tasks.tolist(), [] if table.agents is None else table.agents.tolist()
        labelled = 0 if table.outcomes is None else int(np.count_nonzero(table.outcomes >= 0))
    else:
        names = [{**COLUMNS, **columns}[one] for one in ("task", "agent")]
        rows = read_table(runs.source, set(names))
        tasks, agents = (list(rows.values(name)) if name in rows.columns else [] for name in names)
        labelled = filled(runs.source, outcome) if outcome else 0
    sizes = [*Counter(map(str, tasks)).values()] or [0]
    attempts = np.quantile(sizes, (0, 0.5, 1), method="nearest").astype(int).tolist()
    return {
        "runs": len(tasks),
        "tasks": len(sizes),
        "attempts": dict(zip(("least", "median", "most"), attempts, strict=True)),
        "agents": sorted(set(agents)),
        "judges": list(tables) or judges,
        "truths": [outcome] if outcome and outcome not in truths else truths,
        "labelled": labelled,
    }


def _obstacle(
    judges: Sequence[str], truths: Sequence[str], tables: Mapping[str, ScoreTable]
) -> str:
    """Say what has to be settled before there is an answer."""
    if not judges:
        return (
            "No score of a judge is there. Name its column with --judge NAME, or train a judge on "
            "these runs."
        )
    if not tables:
        return f"No judge has scores that are numbers: {', '.join(judges)}. Correct them."
    if len(truths) > 1:
        return f"Each of {', '.join(truths)} may be the truth. Name one with --truth NAME."
    scores = [table.scores[~np.isnan(table.scores)] for table in tables.values()]
    if not any(map(len, scores)):
        return "No run has a score. Score the runs first."
    if all(np.unique(values).size == 1 for values in scores):
        same = zip(tables, scores, strict=True)
        said = ", ".join(f"{name} {values[0]:g}" for name, values in same)
        return (
            f"Every run has the same score ({said}), which cannot tell successes from failures. "
            "Give scores that differ."
        )
    return ""


def _answer(name: str, table: ScoreTable, candidates: int, drawn: DrawnFile | None) -> JudgeAnswer:
    """Certify the labelled runs of a judge at every budget."""
    known = np.zeros(len(table), dtype=bool) if table.outcomes is None else table.outcomes >= 0
    if not known.any():
        return JudgeAnswer(name, table)
    if drawn is None:
        rows = replace(table.take(known), left_out=int(np.count_nonzero(~known)))
    else:
        rows = drawn.rows_of(table)
    certifier = Certifier.of(**rows.evidence)
    issued = []
    for alpha in BUDGETS:
        try:
            issued.append(issue(certifier, {"alpha": alpha, "candidates": candidates}))
        except UnfitTableError:
            return JudgeAnswer(name, table, certifier.table.auroc)
    widest, rung = issued[-1], None
    if not widest.certified:
        rung = next_rung(certifier, widest, settings_of(widest.certificates[0]))
    return JudgeAnswer(name, table, certifier.table.auroc, tuple(issued), rung)


def _guess(judge: JudgeAnswer) -> tuple[float, float]:
    """Return success rate and AUROC: of the labels where there are some of each outcome."""
    outcomes = judge.table.outcomes
    if outcomes is None or judge.auroc is None:
        return GUESS
    ones, zeros = (int(np.count_nonzero(outcomes == value)) for value in (1, 0))
    if min(ones, zeros) < _TELLING:
        return GUESS
    return ones / (ones + zeros), judge.auroc


def _plans(planner: Planner) -> list[DrawPlan]:
    """Return what draws would give: one labelled run of every task, two, and up to four."""
    whole = int(planner.sizes.size)
    tasks = min(whole, MOST_TASKS)
    one = [_plan(planner, tasks, 1, name) for name in (PROVED, AVERAGE)]
    # the promise on average is made where the proof decides nothing
    found = [one[0] if max(one[0].chance) >= _HOPELESS else one[1]]
    if tasks < whole:
        # a draw has one run of every task before it has the second one of any
        more = dict.fromkeys(min(whole, times * tasks) for times in _MORE)
        return found + [_plan(planner, count, 1, PROVED) for count in more]
    most = min(_MOST_ATTEMPTS, int(planner.sizes.min()))
    numbers = [number for number in planner.designs if number <= most]
    return found + [_plan(planner, tasks, number, CONFIDENT) for number in numbers]


def _plan(planner: Planner, tasks: int, attempts: int, promise: str) -> DrawPlan:
    decided, chance = [], []
    for alpha in BUDGETS:
        asked = Settings(procedure=PROMISED[promise], alpha=alpha)
        sides = [
            planner.plan(asked.replace(side=side), tasks=tasks, attempts=attempts) for side in SIDES
        ]
        decided.append(min(1.0, sum(plan.coverage for plan in sides)))
        chance.append(max(plan.chance for plan in sides))
    return DrawPlan(tasks, attempts, tasks * attempts, promise, tuple(decided), tuple(chance))
