"""Logs as score tables: the judgements of judges, tests and people on every run."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.formats import (
    BROKEN,
    FORMATS,
    detect_format,
    format_error,
    gather_corpus,
)
from certify_assets.corpora.formats.files import ARCHIVES, SourceFile, is_scan
from certify_assets.corpora.formats.gathering import Gathered, Run
from certify_assets.corpora.formats.outcomes import Unclear
from certify_assets.corpora.formats.records import JSON, has_fields, json_rows, mapping
from certify_assets.errors import InputError
from certify_assets.storage.urls import is_web_address
from certify_assets.tables.cells import number_of
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import COLUMNS

if TYPE_CHECKING:
    from certify_assets.corpora.imported import ImportFacts
    from certify_assets.corpora.trajectory import Trajectory

JUDGE: Final = "judge"
TRUTH: Final = "truth"
HUMAN: Final = "human"
#: what the sources of judgements are called where one name has several
_SOURCES: Final = {"llm_judge": "judge", "": "unknown"}
# the kind of a judgement by its name: people first, since human_score is no judge's
_KINDS: Final = (
    (TRUTH, re.compile(r"human|annotat|reviewer|expert|gold|truth|target")),
    (
        JUDGE,
        re.compile(
            r"judge|llm|model_graded|grader|critic|rubric|g[-_]?eval|score|prob|logit|confidence"
            r"|rating|relevan|faithful|similar|factual|reward_model|quality"
        ),
    ),
    (
        TRUTH,
        re.compile(
            r"outcome|label|resolved|solved|success|correct|pass|verdict|exact|match|includes"
            r"|equals|contains|accuracy|\bacc\b|tests?\b|reward"
        ),
    ),
)
#: the column that says where a run is: its page on the web, else its place in the files
_LINK: Final = "link"
#: ends the name of the column with a judge's second scores
_AGAIN: Final = "_again"
#: distinct values from which on a judgement of unknown kind is a score
_GRADES: Final = 3


@dataclass(frozen=True)
class JudgedRuns:
    """The runs of logs and their judgements.

    Parameters
    ----------
    source : pandas.DataFrame or Path
        task_id, trajectory_id, agent, link, and a column for each judgement; or the path of a score
        table.
    kinds : mapping of str to str
        `JUDGE` or `TRUTH` by column.
    title : str
        The format in words.
    left_out : mapping of str to int
        Records that are left out, by reason.
    notes : tuple of str
        Sentences on how the logs were read.
    """

    source: Any
    kinds: Mapping[str, str]
    title: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def named(self, kind: str, name: str | None, option: str = "") -> str | None:
        """Return the column of a judge or truth by name; without a name, the only one.

        `option` is the command's option for the name, by default ``--judge`` or ``--truth``.

        Raises
        ------
        InputError
            If there is no such column, or no name is given and there are several.
        """
        columns = [column for column, found in self.kinds.items() if found == kind]
        option = option or f"--{kind} NAME"
        if name is None:
            if len(columns) > 1:
                raise InputError(
                    f"{self.source.attrs['path']} holds several {kind}s: {', '.join(columns)}. "
                    f"Name one with {option}."
                )
            return next(iter(columns), None)
        if name in self.kinds:
            return name
        # one name may be that of a judge and of people
        same = [column for column in columns if column.rpartition(" (")[0] == name]
        if len(same) != 1:
            raise InputError(
                f"{self.source.attrs['path']} holds no {kind} {name!r}; it holds "
                f"{', '.join(self.kinds) or 'none'}. Name one of these with {option}."
            )
        return same[0]

    def columns_of(self, judge: str) -> dict[str, str]:
        """Return the columns of a judge by field: its scores, and second scores if it has any."""
        again = f"{judge}{_AGAIN}"
        names = getattr(self.source, "columns", ())
        return {"score": judge, **({"again": again} if again in names else {})}


def is_log(path: Path, columns: Collection[str] = ()) -> bool:
    """Whether a path is a log of runs rather than a score table.

    Parameters
    ----------
    path : Path
        A file or folder.
    columns : collection of str
        Columns requested by name; a file with all of them is a table.
    """
    if path.is_dir() or path.name.lower().endswith((*ARCHIVES, ".eval")):
        return True
    if not path.is_file():
        return False
    file = SourceFile(path.name, lambda: path.open("rb"))
    wanted = set(columns or (COLUMNS["task"], COLUMNS["score"]))
    try:
        if file.suffix in JSON:
            _, first = next(json_rows(file), (0, ""))
            is_table = mapping(first).keys() >= wanted
        else:
            is_table = has_fields(file, wanted)
        return not is_table and detect_format([path]) != "table"
    except InputError:
        # a module that cannot be imported may be that of a log
        for problem in BROKEN.values():
            logging.getLogger("certify_assets").warning(problem)
        return False


def has_runs(table: Path) -> bool:
    """Whether a table can be imported as a corpus, because it holds the runs' actions."""
    try:
        return detect_format([table]) == "table"
    except InputError:
        return False


def read_judged(paths: Sequence[Path]) -> JudgedRuns:
    """Read the runs of logs of one format with all their judgements.

    Parameters
    ----------
    paths : sequence of Path
        Files, folders and archives.

    Raises
    ------
    InputError
        If no format or more than one fits, or nothing can be used.
    """
    import pandas as pd

    if len(paths) == 1 and is_scan(paths[0]):
        return _scan(paths[0])
    with _judged(paths) as (gathered, facts):
        runs, form = gathered.rows, FORMATS[facts.format]
    columns, kinds, agreement = _columns(runs, form.marks)
    frame = pd.DataFrame(
        {
            COLUMNS["task"]: [run.task_id for run in runs],
            COLUMNS["id"]: [run.trajectory_id for run in runs],
            COLUMNS["agent"]: [run.draft.agent for run in runs],
            _LINK: [
                run.draft.link if is_web_address(run.draft.link) else str(run.draft.origin)
                for run in runs
            ],
            **{name: pd.Series(values, dtype=object) for name, values in columns.items()},
        }
    )
    frame.attrs["path"] = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and others"
    # hidden from reviewers, as is the page of a run, which shows what is thought of it
    frame.attrs["judgements"] = [_LINK, *columns]
    notes = [f"{said}: {number:,}" for said, number in facts.notes.items()]
    return JudgedRuns(
        frame,
        kinds,
        form.title,
        facts.dropped,
        # what an option of an import would change has no option here
        (*notes, *agreement, *(said for said in facts.read_as if "--option" not in said)),
    )


def read_runs(paths: Sequence[Path], names: Collection[str]) -> Iterator[Trajectory]:
    """Read some runs of logs with their texts, by trajectory_id."""
    if len(paths) == 1 and is_scan(paths[0]):
        return
    with _judged(paths) as (gathered, _):
        for place, run in enumerate(gathered.rows):
            if run.trajectory_id in names:
                yield gathered.trajectory(place)


def _judged(paths: Sequence[Path]) -> AbstractContextManager[tuple[Gathered, ImportFacts]]:
    """Read the runs of logs with all judgements."""
    return gather_corpus(
        paths, format=_format(paths), name="log", options={"keep_unlabelled": True}, judged=True
    )


def _format(paths: Sequence[Path]) -> str:
    """Return the format that fits; for folders and archives, the error is short."""
    try:
        return detect_format(paths)
    except InputError:
        if not any(path.is_dir() or path.name.lower().endswith(ARCHIVES) for path in paths):
            raise
        raise format_error(
            f"{', '.join(map(str, paths))} holds no logs of a known format, or logs of several. "
            "Give a score table, or files of one format."
        ) from None


def _scan(folder: Path) -> JudgedRuns:
    """Return results of Inspect Scout: scanners are judges, targets are human labels."""
    if "scout" in BROKEN:
        raise InputError(BROKEN["scout"])
    from certify_assets.corpora.formats.scout import read_scan

    frame = read_scan(folder)
    names = [name for name in frame.columns if name not in COLUMNS.values()]
    people = ("transcript_success", *(name for name in names if name.endswith("_target")))
    frame.attrs["path"] = str(folder)
    frame.attrs["judgements"] = names
    kinds = {name: TRUTH if name in people else JUDGE for name in names if frame[name].count()}
    return JudgedRuns(frame, kinds, "results of Inspect Scout")


def _columns(
    runs: Sequence[Run], marks: Mapping[str, float] | None
) -> tuple[dict[str, list[Any]], dict[str, str], list[str]]:
    """Return the values of every judgement (None for a run without one), their kinds, and
    agreement.

    A judge's first score of a run counts, and the second one has a separate column. With several
    labels, the majority counts.
    """
    # by name and source, then by row: a run may be judged twice
    said_by: dict[tuple[str, str], dict[int, list[Any]]] = {}
    for row, run in enumerate(runs):
        for said in run.draft.judgements:
            if said.value is not None and not isinstance(said.value, Unclear | dict | list):
                by = _one_line(said.name), _one_line(said.source)
                said_by.setdefault(by, {}).setdefault(row, []).append(said.value)
    columns, kinds, agreement = dict[str, list[Any]](), dict[str, str](), list[str]()
    taken = {_LINK, *COLUMNS.values()} - {COLUMNS["score"], COLUMNS["outcome"]}
    sources, rows = Counter(name for name, _ in said_by), range(len(runs))
    for (name, source), found in sorted(said_by.items()):
        several = sources[name] > 1 or name in taken
        column = f"{name} ({_SOURCES.get(source, source)})" if several else name
        values = {row: [plain(name, one, marks) for one in found[row]] for row in found}
        values = {row: [one for one in given if one is not None] for row, given in values.items()}
        kinds[column] = kind = kind_of(name, chain.from_iterable(values.values()), source)
        if kind == JUDGE:
            columns[column], again = (
                [next(iter(values.get(row, [])[place:]), None) for row in rows] for place in (0, 1)
            )
            if any(one is not None for one in again):
                columns[f"{column}{_AGAIN}"] = again
            continue
        # the words of a truth are read as a whole, as in a table
        worded = {row: [_worded(one, marks) for one in found[row]] for row in found}
        columns[column] = [_majority(worded.get(row, ())) for row in rows]
        agreement += _agreement(column, runs, values)
    return columns, kinds, agreement


def _majority(given: Iterable[Any]) -> Any:
    """Return the majority label of a run, None for a tie."""
    counts = Counter(value for value in given if value is not None).most_common(2)
    values, votes = [value for value, _ in counts], [number for _, number in counts]
    return None if not counts or votes[1:] == votes[:1] else values[0]


def _agreement(
    column: str, runs: Sequence[Run], values: Mapping[int, Sequence[Any]]
) -> Iterator[str]:
    """Measure how far several labels of a run agree, by their order in the log."""
    from certify_assets.tables.agreement import Said, measure_agreement

    said = [
        Said(str(place), runs[row].trajectory_id, int(value))
        for row, given in values.items()
        for place, value in enumerate(given)
        if value in (0, 1)
    ]
    if len({one.trajectory_id for one in said}) < len(said):
        found = measure_agreement(said, {run.trajectory_id: run.task_id for run in runs})
        yield f"{column}: {found.sentence()}"


def _one_line(text: str) -> str:
    """Return a column name in one line of valid Unicode, which JSON does not ensure."""
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _worded(value: Any, marks: Mapping[str, float] | None) -> Any:
    """Return a truth unchanged, but a letter grade as a word."""
    if marks is None or (mark := marks.get(str(value).strip().lower())) is None:
        return value
    return {1.0: "correct", 0.0: "incorrect"}.get(mark, "partly correct")


def plain(name: str, value: Any, marks: Mapping[str, float] | None) -> Any:
    """Return a judgement as a number, if it is a number, a letter grade, or yes or no."""
    if value is None or isinstance(value, Unclear | dict | list):
        return None
    if marks is not None and (mark := marks.get(str(value).strip().lower())) is not None:
        return mark
    if isinstance(value, bool):
        return float(value)
    number = number_of(value)
    if number is None:
        outcome = OutcomeColumn(name).read(value)
        return value if outcome is None else float(outcome) if outcome >= 0 else None
    return number if number == number else None


def kind_of(name: str, values: Iterable[Any], source: str = "") -> str:
    """Return whether a judgement is a judge's or the truth, by source, then name, then values."""
    if source in (HUMAN, "outcome"):
        return TRUTH
    if source == "llm_judge":
        return JUDGE
    if named := kind_by_name(name):
        return named
    return JUDGE if len(set(values) - {None}) >= _GRADES else TRUTH


def kind_by_name(name: str) -> str:
    """Return the kind of a judgement or column by its name; "" if the name does not show it."""
    return next((kind for kind, words in _KINDS if words.search(name.lower())), "")
