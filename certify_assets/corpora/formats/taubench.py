"""τ-bench v1 results: JSON lists of runs with task_id, trial, reward, info and messages."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    AGENT_OPTION,
    Draft,
    Drafts,
    Reading,
    contents,
    corpus_format,
    json_document,
    usable,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import HEAD, Record, begins_json, listed_records
from certify_assets.corpora.formats.texts import (
    Message,
    is_id,
    is_list_of_objects,
    mapping,
    steps_of_messages,
    text_of,
)
from certify_assets.errors import InputError

_REQUIRED = frozenset({"task_id", "traj"})
_MARKS = (re.compile(rb'"task_id"\s*:'), re.compile(rb'"traj"\s*:\s*\['))
_TOOLS = {
    "retail": frozenset(
        {
            "find_user_id_by_email",
            "find_user_id_by_name_zip",
            "get_order_details",
            "get_product_details",
        }
    ),
    "airline": frozenset(
        {
            "search_direct_flight",
            "search_onestop_flight",
            "get_reservation_details",
            "list_all_airports",
        }
    ),
}
_RANGE = re.compile(r"_range_-?\d+-+\d+(?=_|$)")
_STAMP = re.compile(r"_\d{10}$")


def _is_list(head: bytes) -> bool:
    return begins_json(head, b"[") and all(mark.search(head) for mark in _MARKS)


@corpus_format(
    title="τ-bench v1 results (JSON list of runs)",
    suffixes=(".json",),
    domain="customer_service",
    fits=lambda file: _is_list(file.head(HEAD)),
    label_source="state of the database after the run, compared by the harness",
    marks={},
    options={
        "domain": "prefix of task ids (retail, airline); read from the file where it is not given",
        **AGENT_OPTION,
    },
)
def taubench_v1(files: FileSet, reading: Reading) -> Drafts:
    """Read the runs of every result list."""
    for file, data in contents(files, reading):
        if not _is_list(data[:HEAD]):
            reading.other(file, "is not a JSON list of runs with task_id and traj.")
        elif (runs := json_document(file, data, reading)) is not None:
            yield from _read_file(file, data, runs, reading)


def _read_file(file: SourceFile, data: bytes, runs: list[Any], reading: Reading) -> Drafts:
    domain = reading.options.get("domain") or _domain(file, data)
    agent = reading.agent_in_name(file, _agent(file.name, domain))
    reading.sha256(file)
    for row, found in listed_records(runs):
        where = f"{file.name} row {row}"
        record = usable(found, where, reading, _problem)
        if record is None:
            continue
        if "error" in mapping(record.get("info")) or not record["traj"]:
            reading.drop("infrastructure_error", f"{where} holds an error report instead of a run.")
        else:
            yield Draft(
                task_id=f"{domain}/{record['task_id']}",
                agent=agent,
                instruction=text_of(
                    mapping(mapping(record.get("info")).get("task")).get("instruction")
                ),
                steps=steps_of_messages(map(Message.of, record["traj"]), reading),
                outcome=record.get("reward"),
                outcome_name="reward",
                origin=reading.origin(file, row),
                # the task index in some forks: it says nothing of the attempt
                repetition=str(record.get("trial")),
            )


def _problem(record: Record) -> str | None:
    if missing := sorted(_REQUIRED - record.keys()):
        return f"it lacks {', '.join(missing)}"
    if not is_id(task := record["task_id"]):
        return f"its task_id is {task!r}"
    if not is_list_of_objects(record["traj"]):
        return "its traj is not a list of messages"
    return None


def _agent(name: str, domain: str) -> str:
    # no record names its agent: the file does, with task range and time stamp
    stem = PurePosixPath(name).stem
    stem = _STAMP.sub("", _RANGE.sub("", stem))
    return re.sub(rf"[-_]{re.escape(domain)}$", "", stem) or stem


def _domain(file: SourceFile, data: bytes) -> str:
    """Derive the domain from the file's name or else from the tools that its agents called."""
    words = set(re.split(r"[^a-z]+", file.name.lower()))
    named = [domain for domain in _TOOLS if domain in words]
    if len(named) == 1:
        return named[0]
    called = [
        domain
        for domain, tools in _TOOLS.items()
        if any(f'"{tool}"'.encode() in data for tool in tools)
    ]
    if len(called) != 1:
        raise InputError(
            f"{file.name} does not show which τ-bench domain it is of; name it with the "
            "option domain, for example domain=retail."
        )
    return called[0]
