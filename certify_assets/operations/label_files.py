"""Labels by file: export of the review queue, as a table or for Label Studio, and import."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import read_json, sha256_bytes, sha256_file, write_atomic
from certify_assets.names import shared_names
from certify_assets.operations.batch_drawing import close_batches
from certify_assets.operations.batches import closed_batches, runs_file, stored_runs
from certify_assets.operations.decisions import load_decisions
from certify_assets.operations.labels import (
    Label,
    append_labels,
    comment_text,
    read_labels,
    resolve_labels,
    reviewer_name,
)
from certify_assets.operations.review_queue import Queue
from certify_assets.tables.cells import TableError, name_of, shown
from certify_assets.tables.drawn import keep_labels
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.reading import read_table
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.writing import write_table_file
from certify_assets.words import number_of

if TYPE_CHECKING:
    import pandas as pd

_MOST_FAULTS = 20


@dataclass(frozen=True)
class Imported:
    """What a file of labels added and changed, and what was known before."""

    added: int
    changed: int  # the same reviewer said something else of the run before
    stood_already: int
    without_outcome: int
    reviewers: tuple[str, ...]
    overruled: int  # of those that stood: the same reviewer said something else since, or nothing
    closed: tuple[str, ...]  # provisional batches that the labels closed, a sentence each
    waiting: tuple[str, ...]  # what is still wanted: runs now tied, and labels of draws
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


def export_queue(path: Path, corpus: Corpus, queue: Queue) -> None:
    """Write the queue with empty columns outcome, reviewer and comment to a table file.

    Column ``run`` names a file with the text of the run, in a folder next to the table.
    """
    keep_labels(path)
    # a run that comes again with another text has its id, and another batch
    files = {
        name: f"{path.name}_runs/{sha256_bytes(f'{batch} {name}'.encode())[:16]}.txt"
        for name, batch in queue.frame[["trajectory_id", "batch"]].to_numpy().tolist()
    }
    empty = dict.fromkeys(("outcome", "reviewer", "comment"), "")
    write_table_file(path, queue.frame.assign(run=list(files.values()), **empty))
    folder = path.parent
    for old in {*(folder / f"{path.name}_runs").glob(f"{'[0-9a-f]' * 16}.txt")}:
        # of an earlier export
        if old.relative_to(folder).as_posix() not in files.values():
            old.unlink()
    new = [name for name, file in files.items() if not (folder / file).exists()]
    for name, text in _texts(corpus, queue.frame[queue.frame["trajectory_id"].isin(new)]):
        write_atomic(folder / files[name], text.encode("utf-8"))


def export_studio(path: Path, corpus: Corpus, queue: Queue) -> None:
    """Write the queue as tasks of Label Studio, with every run's text.

    docs/review.md has the interface.
    """
    if path.suffix.lower() != ".json":
        raise InputError(f"{path} does not end in .json. Label Studio imports tasks from JSON.")
    texts = dict(_texts(corpus, queue.frame))
    tasks = [
        {"data": {**data, "run": texts[data["trajectory_id"]]}}
        for data in queue.frame[["trajectory_id", "task_id", "batch"]].to_dict("records")
    ]
    write_atomic(path, json.dumps(tasks, ensure_ascii=False, indent=1).encode("utf-8") + b"\n")


def _texts(corpus: Corpus, frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Give the runs of the queue with their whole texts."""
    from certify_assets.corpora.rendering import UNLIMITED, Renderer

    whole = Renderer(UNLIMITED, UNLIMITED, UNLIMITED)
    for batch, rows in frame.groupby("batch"):
        with runs_file(corpus, str(batch)) as path:
            found = stored_runs(path, set(rows["trajectory_id"]))
        for name, run in found.items():
            yield name, whole.render(run.instruction, run.steps).text


def import_labels(
    corpus: Corpus,
    path: Path,
    *,
    reviewer: str | None = None,
    settings: TableSettings | None = None,
) -> Imported:
    """Add the labels of a file: all of them, or none where one is at fault."""
    # rows without an outcome are skipped; the same file again adds nothing, nor does a repetition
    via: Literal["label_studio", "file"] = "file"
    if path.suffix.lower() == ".json":
        via, rows, read_as = "label_studio", _studio_rows(path, reviewer), tuple[str, ...]()
    else:
        rows, read_as = _table_rows(path, reviewer)
    if not rows:
        raise InputError(
            f"{path} holds nothing to import. Give the exported queue with outcomes, or an export "
            "of Label Studio with annotations."
        )
    outcomes = OutcomeColumn("outcome", settings or TableSettings())
    before = read_labels(corpus)
    labels = [
        Label(row.trajectory_id, outcome, row.reviewer, via, row.token, row.comment)
        for row, outcome in _checked(corpus, path, rows, outcomes, before)
    ]
    votes = {name: dict(found.votes) for name, found in resolve_labels(before).items()}
    stored = {label.token for label in before}
    # a repetition of what the reviewer says already is nothing new
    other = [
        label
        for label in labels
        if votes.get(label.trajectory_id, {}).get(label.reviewer) != label.outcome
    ]
    new = [label for label in other if label.token not in stored]
    append_labels(corpus, new)
    changed = sum(label.reviewer in votes.get(label.trajectory_id, {}) for label in new)
    earlier = closed_batches(corpus)
    audits, _ = close_batches(corpus)
    now, named = resolve_labels(read_labels(corpus)), {label.trajectory_id for label in labels}
    tied = sum(name in named and found.outcome is None for name, found in now.items())
    ties = f"Tied now: {number_of(tied, 'labelled run')}. A third reviewer settles each."
    return Imported(
        added=len(new) - changed,
        changed=changed,
        stood_already=len(labels) - len(new),
        overruled=len(other) - len(new),
        without_outcome=len(rows) - len(labels),
        reviewers=tuple(sorted({label.reviewer for label in labels})),
        closed=tuple(
            f"Batch {item.sentence}"
            for item in audits
            if item.closing is not None and item.record.batch not in earlier
        ),
        waiting=(
            *((ties,) if tied else ()),
            *(item.sentence for item in audits if item.state == "provisional"),
        ),
        read_as=(*read_as, *outcomes.notes()),
    )


def _table_rows(path: Path, reviewer: str | None) -> tuple[list[_Row], tuple[str, ...]]:
    texts = ("trajectory_id", "task_id", "reviewer", "comment")
    table = read_table(path, {*texts, "outcome"})
    columns = {name: table.values(name) for name in table.columns}
    if missing := [name for name in ("trajectory_id", "outcome") if name not in columns]:
        raise InputError(
            f"{path} has no column {' and no column '.join(map(repr, missing))} (it has "
            f"{table.listed}). Give trajectory_id and outcome."
        )
    digest, rows = sha256_file(path), []
    for index, outcome in enumerate(columns["outcome"]):
        said = {name: _text(columns[name][index]) for name in texts if name in columns}
        said["reviewer"] = said.get("reviewer") or reviewer or ""
        rows.append(_Row(table.row(index), f"file:{digest}:{index + 1}", outcome, **said))
    return rows, table.read_as


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    name = name_of(value)
    return str(value) if name is None else name


def _studio_rows(path: Path, reviewer: str | None) -> list[_Row]:
    """Read the annotations of Label Studio's JSON export."""
    document = read_json(path, remedy="export the project from Label Studio as JSON")
    digest, rows, number = sha256_file(path), list[_Row](), 0
    try:
        for number, task in enumerate(document, 1):
            names = {name: _text(task["data"].get(name)) for name in ("trajectory_id", "task_id")}
            for place, one in enumerate(task.get("annotations", []), 1):
                where, token = f"task {number}, annotation {place}", f"{digest}:{number}:{place}"
                found = _annotated(one, f"{path}, {where}")
                rows.append(_Row(where, f"label_studio:{token}", **names, **found))
    except (AttributeError, KeyError, TypeError):
        raise InputError(
            f"{path}, task {number} is not from an export of Label Studio. Export the project as "
            "JSON, not as JSON-MIN."
        ) from None
    many = len({row.reviewer for row in rows})
    if reviewer is not None and many > 1:
        raise InputError(
            f"{path} has labels of {many} annotators, who are named by their ids. Leave out "
            "--reviewer."
        )
    return rows if reviewer is None else [replace(row, reviewer=reviewer) for row in rows]


def _annotated(one: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return outcome, reviewer and comment of an annotation."""
    who = one.get("completed_by")
    if isinstance(who, Mapping):
        who = who.get("email") or who.get("id")
    named = isinstance(who, str) and not who.isdecimal()
    results = one.get("result", [])
    # a project may ask other questions than ``outcome`` too
    choices = [
        str(text)
        for item in ([] if one.get("was_cancelled") else results)
        if (item.get("type"), item.get("from_name")) == ("choices", "outcome")
        for text in item["value"]["choices"]
    ]
    if len(choices) > 1:
        raise InputError(
            f"{where}, choices: {len(choices)} choices, but one is needed. Keep success or failure."
        )
    texts = [item["value"]["text"] for item in results if item.get("type") == "textarea"]
    return {
        "outcome": choices[0] if choices else None,
        "reviewer": str(who) if named else f"Label Studio user {who or 'unknown'}",
        "comment": "\n".join(text if isinstance(text, str) else "\n".join(text) for text in texts),
    }


def _checked(
    corpus: Corpus,
    path: Path,
    rows: Sequence[_Row],
    outcomes: OutcomeColumn,
    before: Sequence[Label],
) -> list[tuple[_Row, int]]:
    """Return the rows with an outcome; refuse a file with faults, naming each."""
    tasks = load_decisions(corpus).groupby("trajectory_id")["task_id"].agg(set).to_dict()
    stored = {label.token: label.reviewer for label in before}
    known, places = dict.fromkeys(stored.values()), dict[tuple[str, str], str]()
    found, problems, options = list[tuple[_Row, int]](), dict[str, list[str]](), dict[str, str]()
    # all of the column before the first fault is named
    read = [outcomes.read(row.outcome) for row in rows]
    named = outcomes.settings.success or outcomes.settings.failure
    # next to outcomes another word is a slip; alone it may be a word of the file's own
    slips = not named and outcomes.settings.threshold is None and {0, 1} & {*read}
    for row, outcome in zip(rows, read, strict=True):
        run = row.trajectory_id[:120]
        try:
            own = sorted(tasks.get(row.trajectory_id, ()))
            if own and row.task_id.strip() and not shared_names([row.task_id], own):
                raise InputError(
                    f"column task_id: {run!r} is not a run of task {row.task_id[:120]!r}. Columns "
                    "were edited separately; export the queue again."
                )
            if outcome is None and slips:
                raise InputError(
                    f"column outcome: {shown(row.outcome)} is not an outcome. Write 1 or success, "
                    "0 or failure, or leave it empty."
                )
            if outcome is None:
                sentence, options = outcomes.problem(row.outcome)
                raise InputError(f"column outcome: {sentence}")
            if outcome < 0:
                continue
            said = _named(row, tasks, known)
            who = said.reviewer
            if (first := places.setdefault((row.trajectory_id, who), row.where)) != row.where:
                raise InputError(
                    f"column trajectory_id: {who} labels {run!r} a second time (first in {first}). "
                    "Keep one of the two."
                )
            if (owner := stored.get(row.token, who)) != who:
                raise InputError(
                    f"column reviewer: the file was imported before as the labels of {owner}. It "
                    f"cannot be imported as the labels of {who} too."
                )
            known[who] = None
            found.append((said, outcome))
        except InputError as error:
            # of many rows with the same fault the first is enough, with the number of the others
            same = "outcome" if outcome is None and not slips else str(error)
            problems.setdefault(same, []).append(f"{path}, {row.where}, {error}")
    if problems:
        faults = list(problems.values())[:_MOST_FAULTS]
        raise TableError([f"{first}{_others(rest)}" for first, *rest in faults], options)
    outcomes.require_named(path)
    return found


def _others(rest: Sequence[str]) -> str:
    return f" The same in {number_of(len(rest), 'other row')}." if rest else ""


def _named(row: _Row, tasks: Collection[str], known: Iterable[str]) -> _Row:
    """Return a row of a decided run with its reviewer as stored before."""
    if not row.trajectory_id.strip():
        raise InputError("column trajectory_id is empty. Name the labelled run.")
    if not row.reviewer.strip():
        raise InputError(
            "column reviewer is empty. Fill it in, or name the reviewer with --reviewer NAME."
        )
    column = "reviewer"
    try:
        who = reviewer_name(row.reviewer, known)
        column = "comment"
        comment = comment_text(row.comment)
    except InputError as error:
        raise InputError(f"column {column}: {error}") from None
    if row.trajectory_id not in tasks:
        raise InputError(
            f"column trajectory_id: {row.trajectory_id[:120]!r} is in no decided batch. Check the "
            "id, or decide its batch first."
        )
    return replace(row, reviewer=who, comment=comment)
