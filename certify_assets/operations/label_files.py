"""Labels by file: export of the review queue, as a table or for Label Studio, and import."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import read_json_bytes, sha256_bytes, sha256_file, write_atomic
from certify_assets.names import shared_names
from certify_assets.operations.batch_record import (
    batch_names,
    closed_batches,
    draw_of,
    identities_of,
    waiting_batches,
)
from certify_assets.operations.batches import close_batches
from certify_assets.operations.labels import (
    Label,
    append_labels,
    comment_text,
    read_labels,
    resolve_labels,
    reviewer_name,
)
from certify_assets.operations.layout import PROVISIONAL, batch_run, decisions_of
from certify_assets.operations.review_queue import BLIND_COLUMNS, QUEUE_COLUMNS, Queue
from certify_assets.tables.cells import name_of
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.reading import read_table
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.table import TableError
from certify_assets.tables.writing import write_table_file

_MOST_FAULTS = 20


@dataclass(frozen=True)
class Imported:
    """Labels added, labels known before, rows without an outcome, and their reviewers."""

    added: int
    stood_already: int
    without_outcome: int
    reviewers: tuple[str, ...]
    replaced: int  # of the added: another outcome than the same reviewer gave before
    overruled: int  # of those that stood: the same reviewer said something else since, or nothing
    unasked: int  # labels of runs that no reviewer is asked about: they are kept
    closed: tuple[str, ...]  # provisional batches that the labels closed, a sentence each
    read_as: tuple[str, ...]  # what was understood of the table


@dataclass(frozen=True)
class _Row:
    """One row of a file, unchecked."""

    where: str
    token: str  # its permanent name
    outcome: Any
    trajectory_id: str = ""
    task_id: str = ""
    reviewer: str = ""
    comment: str = ""


def export_queue(path: Path, queue: Queue, *, with_judge: bool = False) -> None:
    """Write the queue with empty columns outcome, reviewer and comment to a table file."""
    # agent, score, decision and thresholds can bias a reviewer, so they are asked for by name
    _refuse_labels(path)
    frame = queue.frame[list(QUEUE_COLUMNS if with_judge else BLIND_COLUMNS)].assign(
        outcome="", reviewer="", comment=""
    )
    write_table_file(path, frame)


def _refuse_labels(path: Path) -> None:
    try:
        table = read_table(path, {"outcome"})
    except InputError:
        return
    if filled := sum(bool(_text(value).strip()) for value in table.columns.get("outcome", ())):
        raise InputError(
            f"{path} holds {filled} outcomes, which the export would write over; import it first, "
            "or give another path."
        )


def export_studio(path: Path, corpus: Corpus, queue: Queue) -> None:
    """Write the queue as tasks of Label Studio, with every run's text.

    docs/review.md has the interface.
    """
    from certify_assets.corpora.rendering import UNLIMITED, Renderer

    if path.suffix.lower() != ".json":
        raise InputError(f"{path} does not end in .json; Label Studio imports tasks from JSON.")
    whole = Renderer(UNLIMITED, UNLIMITED, UNLIMITED)
    tasks = []
    for data in queue.frame[["trajectory_id", "task_id", "batch"]].to_dict("records"):
        run = batch_run(corpus, data["batch"], data["trajectory_id"])
        text = whole.render(run.instruction, run.steps).text
        tasks.append({"data": {**data, "run": text}})
    write_atomic(path, json.dumps(tasks, ensure_ascii=False, indent=1).encode("utf-8") + b"\n")


def import_labels(
    corpus: Corpus,
    path: Path,
    *,
    reviewer: str | None = None,
    settings: TableSettings | None = None,
) -> Imported:
    """Add the labels of a file: all of them, or none where one is at fault."""
    # rows without an outcome are skipped; the same file again adds nothing, nor does a repetition
    via, read_as = "file", tuple[str, ...]()
    if path.suffix.lower() == ".json":
        via, rows = "label_studio", _studio_rows(path, reviewer)
    else:
        rows, read_as = _table_rows(path, reviewer)
    outcomes = OutcomeColumn("outcome", settings or TableSettings())
    checks = _Import(corpus, path, via)
    labels = checks.labels(rows, outcomes)
    votes = {name: dict(found.votes) for name, found in resolve_labels(checks.before).items()}
    stored = {label.token for label in checks.before}
    # a repetition of what the reviewer says already is nothing new
    other = [
        label
        for label in labels
        if votes.get(label.trajectory_id, {}).get(label.reviewer) != label.outcome
    ]
    new = [label for label in other if label.token not in stored]
    append_labels(corpus, new)
    return Imported(
        added=len(new),
        stood_already=len(labels) - len(new),
        replaced=sum(label.reviewer in votes.get(label.trajectory_id, {}) for label in new),
        overruled=len(other) - len(new),
        without_outcome=len(rows) - len(labels),
        reviewers=tuple(sorted({label.reviewer for label in labels})),
        unasked=sum(label.trajectory_id not in checks.asked for label in labels),
        closed=tuple(_close_settled(corpus)),
        read_as=(*read_as, *outcomes.notes()),
    )


def _close_settled(corpus: Corpus) -> list[str]:
    """Close the provisional batches that the labels settle, and say so of each."""
    before = closed_batches(corpus)
    audits, _ = close_batches(corpus)
    return [
        f"Batch {item.sentence}"
        for item in audits
        if item.state != "provisional" and item.batch not in before
    ]


def _table_rows(path: Path, reviewer: str | None) -> tuple[list[_Row], tuple[str, ...]]:
    wanted = ("trajectory_id", "task_id", "outcome", "reviewer", "comment")
    table = read_table(path, {*wanted, "annotator"})
    columns = {name: table.values(name) for name in table.columns}
    if missing := [name for name in ("trajectory_id", "outcome") if name not in columns]:
        raise InputError(
            f"{path} has no column {' and no column '.join(map(repr, missing))} (it has "
            f"{table.listed}); give trajectory_id and outcome."
        )
    digest = sha256_file(path)
    rows = []
    for index, outcome in enumerate(columns["outcome"]):
        texts = {
            name: _text(columns[name][index])
            for name in (*wanted, "annotator")
            if name in columns and name != "outcome"
        }
        # a CSV that Label Studio writes
        if annotator := texts.pop("annotator", ""):
            texts.setdefault("reviewer", _Annotation(completed_by=annotator).reviewer)
        token = f"file:{digest}:{table.rows.numbers[index]}"
        rows.append(_Row(table.rows.name(index), token, outcome, **texts))
    if "annotator" in columns and "reviewer" not in columns:
        rows = _renamed(path, rows, reviewer)
    return [replace(row, reviewer=row.reviewer or reviewer or "") for row in rows], table.read_as


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    name = name_of(value)
    return str(value) if name is None else name


def _renamed(path: Path, rows: list[_Row], reviewer: str | None) -> list[_Row]:
    """Give the labels of the one annotator of a project to a reviewer, if one is named."""
    if reviewer is None:
        return rows
    if (many := len({row.reviewer for row in rows} - {""})) > 1:
        raise InputError(
            f"{path} has labels of {many} annotators; leave the reviewer out, their ids name them."
        )
    return [replace(row, reviewer=reviewer) for row in rows]


class _Person(BaseModel):
    email: str | None = None
    id: int | str | None = None


class _Value(BaseModel):
    choices: list[str] = []
    text: list[str] | str = ""


class _Result(BaseModel):
    type: str = ""
    from_name: str = ""
    value: _Value = _Value()


class _Annotation(BaseModel):
    completed_by: _Person | int | str | None = None
    was_cancelled: bool = False
    result: list[_Result] = []

    @property
    def reviewer(self) -> str:
        """Who made it: an address, or a name made of the user's number."""
        who = self.completed_by
        if isinstance(who, _Person):
            who = who.email or who.id
        named = isinstance(who, str) and not who.isdecimal()
        return str(who) if named else f"Label Studio user {who or 'unknown'}"

    @property
    def choices(self) -> list[str]:
        """What was chosen; a project may ask other questions than ``outcome`` too."""
        asked = [one for one in self.result if (one.type, one.from_name) == ("choices", "outcome")]
        return [] if self.was_cancelled else [text for one in asked for text in one.value.choices]

    @property
    def comment(self) -> str:
        """Texts that were written."""
        texts = [one.value.text for one in self.result if one.type == "textarea"]
        return "\n".join(text if isinstance(text, str) else "\n".join(text) for text in texts)


class _Task(BaseModel):
    """A task of Label Studio's JSON export."""

    data: dict[str, Any]
    annotations: list[_Annotation] = []


def _studio_rows(path: Path, reviewer: str | None) -> list[_Row]:
    document, data = read_json_bytes(path, remedy="export the project from Label Studio as JSON")
    try:
        tasks = TypeAdapter(list[_Task]).validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        row, *inner = first["loc"] or ("",)
        where = f", task {int(row) + 1}, {'.'.join(map(str, inner))}" if inner else ""
        raise InputError(
            f"{path}{where} is not an export of Label Studio ({first['msg']}); export the project "
            "as JSON, not as JSON-MIN."
        ) from None
    digest, rows = sha256_bytes(data), []
    for number, task in enumerate(tasks, 1):
        names = {name: _text(task.data.get(name)) for name in ("trajectory_id", "task_id")}
        for place, one in enumerate(task.annotations, 1):
            where = f"task {number}, annotation {place}"
            if len(one.choices) > 1:
                raise InputError(
                    f"{path}, {where}, choices: {len(one.choices)} choices where one is asked for; "
                    "keep success or failure."
                )
            token = f"label_studio:{digest}:{number}:{place}"
            outcome, who = next(iter(one.choices), None), one.reviewer
            rows.append(_Row(where, token, outcome, **names, reviewer=who, comment=one.comment))
    return _renamed(path, rows, reviewer)


class _Import:
    """Rows of a file on their way to labels, and what they are checked against."""

    def __init__(self, corpus: Corpus, path: Path, via: str) -> None:
        self._corpus, self._path, self._via = corpus, path, via
        self.before = read_labels(corpus)
        self._known = dict.fromkeys(label.reviewer for label in self.before)
        self._stored = {label.token: label.reviewer for label in self.before}
        self._places: dict[tuple[str, str], str] = {}
        # of the decided runs, some of which reviewers are asked about
        self._tasks: dict[str, set[str]] = {}
        self.asked: set[str] = set()
        for batch in batch_names(corpus):
            decisions = decisions_of(corpus, batch)
            drawn = draw_of(corpus, batch) is not None
            wanted = (decisions["asked"] != "") | (drawn & (decisions["decision"] == PROVISIONAL))
            self.asked.update(decisions.loc[wanted, "trajectory_id"])
            for name, task in zip(decisions["trajectory_id"], decisions["task_id"], strict=True):
                self._tasks.setdefault(name, set()).add(task)

    def labels(self, rows: Sequence[_Row], outcomes: OutcomeColumn) -> list[Label]:
        """Return the rows with an outcome as labels; refuse a file with faults, naming each."""
        labels, problems, options = list[Label](), dict[str, str](), dict[str, str]()
        # all of the column before the first fault is named
        read = [outcomes.read(row.outcome) for row in rows]
        for row, outcome in zip(rows, read, strict=True):
            problem = self._misplaced(row)
            if not problem and outcome is None:
                sentence, options = outcomes.problem(row.outcome)
                problem = f"column outcome: {sentence}"
            elif not problem and outcome is not None and outcome >= 0:
                try:
                    labels.append(self._label(row, outcome))
                except InputError as error:
                    problem = str(error)
            if problem:
                # of many rows with the same fault the first is enough
                same = "outcome" if outcome is None else problem
                problems.setdefault(same, f"{self._path}, {row.where}, {problem}")
        if problems:
            raise TableError(list(problems.values())[:_MOST_FAULTS], options)
        outcomes.require_named(self._path)
        return labels

    def _misplaced(self, row: _Row) -> str:
        """Say that a run is next to another task than its own: a column was sorted alone."""
        tasks = sorted(self._tasks.get(row.trajectory_id, ()))
        if not tasks or not row.task_id.strip() or shared_names([row.task_id], tasks):
            return ""
        return (
            f"column task_id: {row.trajectory_id[:120]!r} is no run of task "
            f"{row.task_id[:120]!r}; its columns were edited apart from each other, so export the "
            "queue again."
        )

    def _label(self, row: _Row, outcome: int) -> Label:
        name = row.trajectory_id
        if not name.strip():
            raise InputError("column trajectory_id is empty; name the run that the label is of.")
        if not row.reviewer.strip():
            raise InputError(
                "column reviewer is empty; fill it in, or say whose labels they are with "
                "--reviewer NAME."
            )
        column = "reviewer"
        try:
            who = reviewer_name(row.reviewer, self._known)
            column = "comment"
            comment = comment_text(row.comment)
        except InputError as error:
            raise InputError(f"column {column}: {error}") from None
        if name not in self._tasks:
            raise InputError(f"column trajectory_id: {name[:120]!r} {self._unknown(name)}")
        if (first := self._places.setdefault((name, who), row.where)) != row.where:
            raise InputError(
                f"column trajectory_id: {who} labels {name[:120]!r} a second time (first in "
                f"{first}); keep one of the two."
            )
        if (owner := self._stored.get(row.token, who)) != who:
            raise InputError(
                f"column reviewer: the file was imported before as the labels of {owner}; one "
                f"file cannot be the labels of {who} too."
            )
        self._known[who] = None
        return Label(name, outcome, who, self._via, row.token, comment)

    def _unknown(self, name: str) -> str:
        """Say why a run that nobody decided can have no label."""
        for batch in waiting_batches(self._corpus):
            if name in set(identities_of(self._corpus, batch)["trajectory_id"]):
                return f"is a run of batch {batch}, which nobody decided; decide the batch first."
        if spelled := shared_names([name], [*self._tasks]):
            return f"is {spelled[0][1][:120]!r} in another spelling. Write it as it was exported."
        return f"is no run that was decided for {self._corpus}; check the id and the corpus."
