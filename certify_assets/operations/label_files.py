"""Labels by file: export of the review queue, as a table or for Label Studio, and import."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import read_json_bytes, sha256_bytes, sha256_file, write_atomic
from certify_assets.names import shared_names
from certify_assets.operations.batch_draws import draw_of
from certify_assets.operations.batch_record import batch_names, identities_of, waiting_batches
from certify_assets.operations.labels import Label, append_labels, read_labels, resolve_labels
from certify_assets.operations.layout import PROVISIONAL, RunLookup, decisions_of
from certify_assets.operations.review_queue import BLIND_COLUMNS, QUEUE_COLUMNS, Queue
from certify_assets.operations.review_session import MAX_COMMENT, close_settled, reviewer_name
from certify_assets.storage.store import Store
from certify_assets.tables.cells import name_of
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.reading import TABLE_ENDINGS, read_table
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.table import Table, TableError
from certify_assets.tables.writing import write_table_file

_WANTED = ("trajectory_id", "task_id", "outcome", "reviewer", "comment")
_MOST_FAULTS = 20


@dataclass(frozen=True)
class Imported:
    """Labels added, labels known before, rows without an outcome, and their reviewers."""

    added: int
    stood: int
    empty: int
    reviewers: tuple[str, ...]
    replaced: int  # of the added: another outcome than the same reviewer gave before
    overruled: int  # of those that stood: the same reviewer said something else since, or nothing
    unasked: int  # labels of runs that no reviewer is asked about: they are kept
    closed: tuple[str, ...]  # provisional batches that the labels closed, a sentence each
    read_as: tuple[str, ...]  # what was understood of the table


@dataclass(frozen=True)
class _Statement:
    """One row of a file, unchecked; `where` is its place and `token` its permanent name."""

    where: str
    column: str
    trajectory_id: str
    task_id: str
    outcome: Any
    reviewer: Any
    comment: Any
    token: str


def export_queue(path: Path, queue: Queue, *, with_judge: bool = False) -> None:
    """Write the queue with empty columns outcome, reviewer and comment to a table file."""
    # agent, score, decision and thresholds can bias a reviewer, so they are asked for by name
    _refuse_labels(path)
    frame = queue.frame[list(QUEUE_COLUMNS if with_judge else BLIND_COLUMNS)].assign(
        outcome="", reviewer="", comment=""
    )
    write_table_file(path, frame)


def _refuse_labels(path: Path) -> None:
    if not path.is_file() or path.suffix.lower() not in TABLE_ENDINGS:
        return
    try:
        table = read_table(path, {"outcome"})
    except InputError:
        return
    outcomes = table.values("outcome") if "outcome" in table.columns else []
    if filled := sum(str(value).strip() not in ("", "None", "nan") for value in outcomes):
        raise InputError(
            f"{path} holds {filled} outcomes, which the export would write over; import it first, "
            "or give another path."
        )


def export_studio(path: Path, store: Store, corpus: str, queue: Queue) -> None:
    """Write the queue as tasks of Label Studio, with every run's text.

    docs/review.md has the interface.
    """
    if path.suffix.lower() != ".json":
        raise InputError(f"{path} does not end in .json; Label Studio imports tasks from JSON.")
    lookup = RunLookup(store, corpus)
    columns = (queue.frame[name] for name in ("trajectory_id", "task_id", "batch"))
    tasks = [{"data": _task(lookup, *row)} for row in zip(*columns, strict=True)]
    write_atomic(path, json.dumps(tasks, ensure_ascii=False, indent=1).encode("utf-8") + b"\n")


def _task(lookup: RunLookup, trajectory_id: str, task_id: str, batch: str) -> dict[str, str]:
    from certify_assets.corpora.rendering import UNLIMITED, Renderer

    run, whole = lookup.find(batch, trajectory_id), Renderer(UNLIMITED, UNLIMITED, UNLIMITED)
    text = whole.render(run.instruction, run.steps).text
    return {"trajectory_id": trajectory_id, "task_id": task_id, "batch": batch, "run": text}


def import_labels(
    corpus: Corpus,
    path: Path,
    *,
    reviewer: str | None = None,
    settings: TableSettings | None = None,
) -> Imported:
    """Add the labels of a file: all of them, or none where one is at fault."""
    # rows without an outcome are skipped; the same file again adds nothing, nor does a repetition
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file; check the path.")
    suffix = path.suffix.lower()
    if suffix not in TABLE_ENDINGS:
        raise InputError(
            f"{path} does not end in .csv, .jsonl, .parquet or .json, nor in .tsv or .xlsx; save "
            "the labels in one of these formats."
        )
    before = read_labels(corpus)
    studio, read_as = suffix == ".json", tuple[str, ...]()
    if studio:
        statements = list(_studio(path, reviewer))
    else:
        statements, read_as = _table(path, reviewer)
    outcomes = OutcomeColumn("outcome", settings or TableSettings())
    labels = _labels(path, statements, before, outcomes, studio)
    unasked = _require_decided(corpus, path, statements, labels)
    _require_once(path, statements, labels)
    _require_same_reviewer(path, before, labels)
    votes = {name: dict(found.votes) for name, found in resolve_labels(before).items()}
    new = _news(before, votes, labels)
    overruled = sum(
        votes.get(label.trajectory_id, {}).get(label.reviewer) != label.outcome for label in labels
    ) - len(new)
    append_labels(corpus, new)
    return Imported(
        added=len(new),
        stood=len(labels) - len(new),
        replaced=sum(label.reviewer in votes.get(label.trajectory_id, {}) for label in new),
        overruled=overruled,
        empty=len(statements) - len(labels),
        reviewers=tuple(sorted({label.reviewer for label in labels})),
        unasked=unasked,
        closed=tuple(close_settled(corpus)),
        read_as=(*read_as, *outcomes.notes()),
    )


def _table(path: Path, reviewer: str | None) -> tuple[list[_Statement], tuple[str, ...]]:
    table = read_table(path, {*_WANTED, "annotator"})
    columns = {name: table.values(name) for name in table.columns}
    if missing := [name for name in ("trajectory_id", "outcome") if name not in columns]:
        raise InputError(
            f"{path} has no column {' and no column '.join(map(repr, missing))} (it has "
            f"{table.listed}); give trajectory_id and outcome."
        )
    # a CSV that Label Studio writes
    if "annotator" in columns and "reviewer" not in columns:
        who = [_annotator({"completed_by": _name(name)}) for name in columns["annotator"]]
        _require_one_annotator(path, {*who} - {""}, reviewer)
        columns["reviewer"] = who if reviewer is None else [reviewer] * len(who)
    return list(_statements(table, columns, reviewer)), table.read_as


def _require_one_annotator(path: Path, names: AbstractSet[str], reviewer: str | None) -> None:
    if reviewer is not None and len(names) > 1:
        raise InputError(
            f"{path} has labels of {len(names)} annotators; leave the reviewer out, their ids "
            "name them."
        )


def _statements(
    table: Table, columns: Mapping[str, Sequence[Any]], reviewer: str | None
) -> Iterator[_Statement]:
    digest, rows = sha256_file(table.path), table.rows
    for index in range(len(table)):
        value: dict[str, Any] = {
            name: columns[name][index] if name in columns else None for name in _WANTED
        }
        for name in ("trajectory_id", "task_id"):
            value[name] = _name(value[name])
        if _blank(value["reviewer"]):
            value["reviewer"] = reviewer
        yield _Statement(
            rows.name(index), "outcome", **value, token=f"file:{digest}:{rows.numbers[index]}"
        )


def _studio(path: Path, reviewer: str | None) -> Iterator[_Statement]:
    tasks, data = read_json_bytes(path, remedy="export the project from Label Studio as JSON")
    if not isinstance(tasks, list) or not all(
        isinstance(task, dict) and isinstance(task.get("data"), dict) for task in tasks
    ):
        raise InputError(
            f"{path} is not a list of tasks with data; export the project from Label Studio as "
            "JSON, not as JSON-MIN."
        )
    given = [
        (row, task, place, one)
        for row, task in enumerate(tasks, 1)
        for place, one in _annotations(path, row, task)
    ]
    _require_one_annotator(path, {_annotator(one) for *_, one in given}, reviewer)
    digest = sha256_bytes(data)
    for row, task, place, one in given:
        where = f"task {row}, annotation {place}"
        said: dict[str, Any] = {
            "outcome": _choice(path, where, one),
            "comment": _remark(one),
            "reviewer": reviewer or _annotator(one),
        }
        for name in ("trajectory_id", "task_id"):
            said[name] = _name(task["data"].get(name))
        yield _Statement(where, "outcome", **said, token=f"label_studio:{digest}:{row}:{place}")


def _annotations(
    path: Path, row: int, task: Mapping[str, Any]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    found = task.get("annotations", [])
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get("result", []), list) for one in found
    ):
        raise InputError(
            f"{path}, task {row}: annotations is not a list of annotations; export the project "
            "from Label Studio as JSON."
        )
    yield from enumerate(found, 1)


def _annotator(annotation: Mapping[str, Any]) -> str:
    who = annotation.get("completed_by")
    if isinstance(who, Mapping):
        who = who.get("email") or who.get("id")
    named = isinstance(who, str) and not who.isdecimal()
    return str(who) if named else f"Label Studio user {'unknown' if who is None else who}"


def _choice(path: Path, where: str, annotation: Mapping[str, Any]) -> str | None:
    """Return the choice of an annotation; None where it was skipped.

    A project may ask other questions too: only the control called ``outcome`` answers this one.
    """
    picked = [
        choice
        for value in _values(annotation, "choices", control="outcome")
        for choice in _texts(value.get("choices"))
    ]
    if annotation.get("was_cancelled") or not picked:
        return None
    if len(picked) > 1:
        raise InputError(
            f"{path}, {where}, choices: {len(picked)} choices where one is asked for; keep "
            "success or failure."
        )
    return picked[0]


def _remark(annotation: Mapping[str, Any]) -> str:
    return "\n".join(
        text for value in _values(annotation, "textarea") for text in _texts(value.get("text"))
    )


def _values(
    annotation: Mapping[str, Any], kind: str, control: str | None = None
) -> list[Mapping[str, Any]]:
    results = [
        one
        for one in annotation.get("result", [])
        if isinstance(one, Mapping)
        and one.get("type") == kind
        and control in (None, one.get("from_name"))
    ]
    return [one["value"] for one in results if isinstance(one.get("value"), Mapping)]


def _texts(value: Any) -> list[str]:
    return [
        str(item) for item in (value if isinstance(value, list) else [value]) if item is not None
    ]


def _labels(
    path: Path,
    statements: Sequence[_Statement],
    before: Sequence[Label],
    outcomes: OutcomeColumn,
    studio: bool,
) -> list[Label]:
    """Return the rows that have an outcome as labels; refuse a file with a fault, naming each."""
    known = dict.fromkeys(label.reviewer for label in before)
    labels, problems, options = list[Label](), dict[str, str](), dict[str, str]()
    # all of the column before the first fault is named
    read = [outcomes.read(one.outcome) for one in statements]
    for one, outcome in zip(statements, read, strict=True):
        if outcome is None:
            if "outcome" in problems:
                continue
            problem, options = outcomes.problem(one.outcome)
            problems["outcome"] = f"{path}, {one.where}, column outcome: {problem}"
        elif outcome >= 0:
            try:
                labels.append(_label(path, one, outcome, known, studio))
            except InputError as error:
                # of many rows with the same fault the first is enough
                problems.setdefault(str(error).replace(one.where, ""), str(error))
    if problems:
        raise TableError(list(problems.values())[:_MOST_FAULTS], options)
    outcomes.require_named(path)
    return labels


def _label(
    path: Path, one: _Statement, outcome: int, known: dict[str, None], studio: bool
) -> Label:
    """Return a row as a label; add its reviewer to those known."""
    if _blank(one.trajectory_id):
        raise InputError(
            f"{path}, {one.where}, column trajectory_id is empty; name the run that the label is "
            "of."
        )
    if _blank(one.reviewer):
        raise InputError(
            f"{path}, {one.where}, column reviewer is empty; fill it in, or say whose labels they "
            "are with --reviewer NAME."
        )
    try:
        name = reviewer_name(str(one.reviewer), known)
    except InputError as error:
        raise InputError(f"{path}, {one.where}, column reviewer: {error}") from None
    known[name] = None
    comment = "" if _blank(one.comment) else str(one.comment).strip()[:MAX_COMMENT]
    return Label(
        one.trajectory_id,
        outcome,
        name,
        "label_studio" if studio else "file",
        one.token,
        comment,
    )


def _name(value: Any) -> str:
    name = name_of(value)
    return str(value) if name is None else name


def _blank(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _require_decided(
    corpus: Corpus, path: Path, statements: Sequence[_Statement], labels: Sequence[Label]
) -> int:
    """Refuse runs that were not decided or are of another task; count those nobody asks about."""
    known: dict[str, set[str]] = {}
    asked: set[str] = set()
    for batch in batch_names(corpus):
        rows = decisions_of(corpus, batch)
        for name, task in zip(rows["trajectory_id"], rows["task_id"], strict=True):
            known.setdefault(name, set()).add(task)
        drawn = draw_of(corpus, batch) is not None
        wanted = (rows["asked"] != "") | (drawn & (rows["decision"] == PROVISIONAL))
        asked.update(rows.loc[wanted, "trajectory_id"])
    _require_task(path, statements, known)
    wrong = next((label for label in labels if label.trajectory_id not in known), None)
    if wrong is None:
        return sum(label.trajectory_id not in asked for label in labels)
    where = (
        f"{path}, {_where(statements, wrong)}, column trajectory_id: {wrong.trajectory_id[:120]!r}"
    )
    if elsewhere := _undecided_batch(corpus, wrong.trajectory_id):
        raise InputError(
            f"{where} is a run of batch {elsewhere}, which nobody decided; decide the batch "
            "first. Nothing was imported."
        )
    if spelled := shared_names([wrong.trajectory_id], [*known]):
        raise InputError(
            f"{where} is {spelled[0][1][:120]!r} in another spelling. Write it as it was exported. "
            "Nothing was imported."
        )
    raise InputError(
        f"{where} is no run that was decided for {corpus}; check the id and the corpus. Nothing "
        "was imported."
    )


def _require_task(
    path: Path, statements: Sequence[_Statement], known: Mapping[str, set[str]]
) -> None:
    """Refuse a run next to another task than its own: a column was sorted or edited alone."""
    for one in statements:
        tasks = known.get(one.trajectory_id, set())
        if tasks and not _blank(one.task_id) and not shared_names([one.task_id], [*tasks]):
            raise InputError(
                f"{path}, {one.where}, column task_id: {one.trajectory_id[:120]!r} is no run "
                f"of task {one.task_id[:120]!r}; its columns were edited apart from each "
                "other, so export the queue again. Nothing was imported."
            )


def _undecided_batch(corpus: Corpus, trajectory_id: str) -> str | None:
    for batch in waiting_batches(corpus):
        if trajectory_id in set(identities_of(corpus, batch)["trajectory_id"]):
            return batch
    return None


def _require_once(path: Path, statements: Sequence[_Statement], labels: Sequence[Label]) -> None:
    seen: dict[tuple[str, str], Label] = {}
    for label in labels:
        first = seen.setdefault((label.trajectory_id, label.reviewer), label)
        if first is not label:
            raise InputError(
                f"{path}, {_where(statements, label)}, column trajectory_id: {label.reviewer} "
                f"labels {label.trajectory_id[:120]!r} a second time "
                f"(first in {_where(statements, first)}); keep one of the two. Nothing was "
                "imported."
            )


def _require_same_reviewer(path: Path, before: Sequence[Label], labels: Sequence[Label]) -> None:
    written = {label.token: label for label in before}
    for label in labels:
        old = written.get(label.token)
        if old is not None and old.reviewer != label.reviewer:
            raise InputError(
                f"{path} was imported before as the labels of {old.reviewer}; one file cannot be "
                f"the labels of {label.reviewer} too. "
                "Nothing was imported."
            )


def _news(
    before: Sequence[Label], votes: Mapping[str, Mapping[str, int]], labels: Sequence[Label]
) -> list[Label]:
    """Leave out rows of this file that are stored, and repetitions of a reviewer."""
    written = {label.token for label in before}
    return [
        label
        for label in labels
        if label.token not in written
        and votes.get(label.trajectory_id, {}).get(label.reviewer) != label.outcome
    ]


def _where(statements: Sequence[_Statement], label: Label) -> str:
    return next(one.where for one in statements if one.token == label.token)
