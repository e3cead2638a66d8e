"""τ-bench v1 results: JSON lists of runs with task_id, trial, reward, info and messages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import Draft, Files, Reading, contents, corpus_format
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.records import REST_LOST, first_record, iter_list
from certify_assets.corpora.formats.texts import mapping, steps_of_messages
from certify_assets.errors import InputError

_REQUIRED = frozenset({"task_id", "reward", "traj"})
_TOLERANCE = 1e-6
_BLANK = b"\xef\xbb\xbf \t\r\n"
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


def _fits(file: SourceFile) -> bool:
    # a list, before the whole file is read
    return (
        file.head(64).lstrip(_BLANK).startswith(b"[")
        and file.size <= file.limit
        and first_record(file.read(), _REQUIRED) is not None
    )


@corpus_format(
    title="τ-bench v1 results (JSON list of runs)",
    suffixes=(".json",),
    domain="customer_service",
    fits=_fits,
    label_source="state of the database after the run, compared by the harness",
    options={
        "domain": "prefix of task ids (retail, airline); read from the file where it is not given"
    },
    leak_fields=(
        "reward",
        "info.reward_info",
        "info.task.actions",
        "info.task.outputs",
        "info.error",
        "info.traceback",
        "info.source",
        "info.user_cost",
        "records",
    ),
)
def taubench_v1(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read the runs of every result list."""
    for file, data in contents(files, reading):
        if first_record(data, _REQUIRED) is None:
            reading.tally.other(
                file.name, f"{file.name} is not a JSON list of runs with task_id, reward and traj."
            )
            continue
        yield from _read_file(file, data, reading)


def _read_file(file: SourceFile, data: bytes, reading: Reading) -> Iterator[Draft]:
    domain = reading.options.get("domain") or _domain(file, data)
    agent, sha256 = _agent(file.name, domain), reading.sha256(file)
    for row, record in iter_list(data, _REQUIRED):
        where = f"{file.name} row {row}"
        problem = record if isinstance(record, str) else _problem(record)
        if problem == REST_LOST:
            reading.tally.drop("file_ends_early", f"{where}: {REST_LOST}.")
        elif problem or isinstance(record, str):
            reading.tally.drop("unreadable_record", f"{where} cannot be used: {problem}.")
        elif "error" in mapping(record.get("info")) or not record["traj"]:
            reading.tally.drop(
                "infrastructure_error", f"{where} holds an error report instead of a run."
            )
        else:
            yield Draft(
                task_id=f"{domain}/{record['task_id']}",
                agent=agent,
                instruction=_instruction(record),
                steps=steps_of_messages(record["traj"], reading),
                outcome=_outcome(record["reward"]),
                source_file=file.name,
                source_sha256=sha256,
                row=row,
                repetition=str(record.get("trial")),
            )


def _problem(record: Mapping[str, Any]) -> str | None:
    if missing := sorted(_REQUIRED - record.keys()):
        return f"it lacks {', '.join(missing)}"
    task = record["task_id"]
    if isinstance(task, bool) or not isinstance(task, int | str) or task == "":
        return f"its task_id is {task!r}"
    if not isinstance(record["traj"], list) or not all(
        isinstance(message, Mapping) for message in record["traj"]
    ):
        return "its traj is not a list of messages"
    return None


def _outcome(reward: Any) -> int | None:
    if not isinstance(reward, int | float) or math.isnan(reward):
        return None
    return int(abs(reward - 1.0) <= _TOLERANCE)


def _instruction(record: Mapping[str, Any]) -> str:
    instruction = mapping(mapping(record.get("info")).get("task")).get("instruction")
    return instruction if isinstance(instruction, str) else ""


def _agent(name: str, domain: str) -> str:
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
