"""OpenHands evaluation outputs (output.jsonl): a record a run, with its events as history."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from certify_assets.corpora.formats.base import Draft, Drafts, Origin, Reading, corpus_format, words
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import Record, iter_lines
from certify_assets.corpora.formats.swe_reports import (
    Reports,
    Unlabelled,
    issue_text,
    run_name,
    task_of,
)
from certify_assets.corpora.formats.texts import (
    Conversation,
    arguments_text,
    is_id,
    is_list_of_objects,
    mapping,
    message_text,
    text_of,
)
from certify_assets.corpora.schema import Step

_REQUIRED = frozenset({"instance_id", "history"})
_FIRST_LINES = 5
_LINES = (".jsonl", ".ndjson")
_PATTERNS = ("*.jsonl", "*.ndjson", "*.jsonl.gz", "*.ndjson.gz")
# of an evaluation with a critic, which tries again what the critic rejects
_ATTEMPT = re.compile(r"\.critic_attempt_\d{1,4}\.jsonl$")
# what OpenHands notes for itself, and what its runtime adds to every action
_SILENT = frozenset(
    words(
        "system change_agent_state agent_state_changed null recall condensation "
        "condensation_request"
    )
)
_NOISE = frozenset(
    words(
        "blocking confirmation_state cwd file_urls hidden image_urls impl_source "
        "include_extra is_input is_static keep_prompt kernel_init_code kind "
        "security_risk thought timeout translated_ipython_code wait_for_response"
    )
)


def _fits(file: SourceFile) -> bool:
    """Say whether one of the first lines of a file is an evaluation output."""
    if file.suffix not in _LINES:
        return False
    first = (record for _, record in islice(_lines(file), _FIRST_LINES))
    return any(isinstance(record, dict) and record.keys() >= _REQUIRED for record in first)


@corpus_format(
    title="OpenHands evaluation outputs (output.jsonl)",
    suffixes=(*_LINES, ".json"),
    domain="software",
    fits=_fits,
    label_source="tests of the instance, run by the SWE-bench harness on the agent's patch",
)
def openhands(files: FileSet, reading: Reading) -> Drafts:
    """Read the runs of every output file, with outcomes from reports."""
    names = {file.plain_name for file in files}

    def superseded(file: SourceFile) -> bool:
        # a file next to it holds the last attempts, where this one holds one of all attempts
        last = _ATTEMPT.sub(".jsonl", file.plain_name)
        return last != file.plain_name and last in names

    reports = Reports(files, reading, _named_tasks(files, superseded))
    for file in files:
        try:
            if superseded(file):
                reading.sha256(file)
                for row, _ in _lines(file):
                    where = f"{file.name} row {row}"
                    reading.drop("superseded", f"{where} is an attempt before the last.")
            elif _fits(file):
                for row, record in _lines(file):
                    draft = _draft(record, reading.origin(file, row), reports)
                    if isinstance(draft, Draft):
                        yield draft
                    else:
                        reading.drop(draft.reason, f"{file.name} row {row} {draft.words}.")
            elif file.name not in reading.hashes:
                reading.other(
                    file,
                    "holds no evaluation output of OpenHands, a JSON object a line with "
                    "instance_id and history.",
                )
        except BrokenFileError as error:
            whole = file.name in reading.hashes
            reading.drop("file_ends_early" if whole else "file_unreadable", str(error))


def _named_tasks(
    files: FileSet, superseded: Callable[[SourceFile], bool]
) -> Iterator[tuple[str, str]]:
    """Go through file and task of every run that the files hold, in its last attempt."""
    for file in files.matching(*_PATTERNS):
        # what is broken is counted where every file is read
        with suppress(BrokenFileError):
            if not superseded(file) and _fits(file):
                for _, record in _lines(file):
                    if isinstance(record, dict) and isinstance(record.get("instance_id"), str):
                        yield file.name, task_of(record["instance_id"])


def _lines(file: SourceFile) -> Iterator[tuple[int, Record | str]]:
    number = 0
    try:
        with file.open() as stream:
            while line := stream.readline(file.limit):
                number += 1
                for _, record in iter_lines(line):
                    yield number, record
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BrokenFileError(
            f"{file.name} cannot be decompressed after row {number} ({error}); fetch it again."
        ) from None


def _draft(record: Record | str, origin: Origin, reports: Reports) -> Draft | Unlabelled:
    if isinstance(record, str):
        return Unlabelled("unreadable_record", f"cannot be used: {record}")
    identity, history = record.get("instance_id"), record.get("history")
    if not is_id(identity) or not str(identity).strip():
        return Unlabelled("unreadable_record", "cannot be used: it has no instance_id")
    if not history:
        reason = "infrastructure_error" if record.get("error") else "no_trajectory"
        return Unlabelled(reason, "holds no history of the run")
    events = _events(history)
    if events is None:
        return Unlabelled(
            "unreadable_record", "cannot be used: its history is not a list of events"
        )
    instruction, steps = _conversation(events)
    if not steps:
        return Unlabelled("no_trajectory", "holds a run in which the agent did nothing")
    task = task_of(str(identity))
    outcome = _outcome(record)
    if outcome is None:
        outcome = reports.outcome(origin.file, task)
    if isinstance(outcome, Unlabelled):
        return outcome
    agent = _agent(record)
    return Draft(
        task_id=task,
        agent=agent or run_name(origin.file),
        instruction=_issue(record) or instruction,
        steps=steps,
        outcome=outcome,
        origin=origin,
        # a line is a run of its own, however alike
        repetition=str(origin.row),
        named_agent=agent,
    )


def _outcome(record: Record) -> Any:
    for report in (
        mapping(record.get("report")),
        mapping(mapping(record.get("test_result")).get("report")),
    ):
        resolved = report.get("resolved")
        if isinstance(resolved, int | float | str):
            if not resolved and report.get("error_eval") is True:
                return Unlabelled(
                    "infrastructure_error", "could not be evaluated, as its report says"
                )
            return resolved
    return None


def _agent(record: Record) -> str:
    metadata = mapping(record.get("metadata"))
    models = (mapping(metadata.get(key)).get("model") for key in ("llm_config", "llm"))
    names = (metadata.get("agent_class"), next(filter(None, models), None))
    return " ".join(name for name in names if isinstance(name, str))


def _issue(record: Record) -> str:
    statement = text_of(mapping(record.get("instance")).get("problem_statement"))
    return statement.strip() or issue_text(text_of(record.get("instruction")))


def _events(history: Any) -> list[Record] | None:
    if not isinstance(history, list):
        return None
    flat = [event for item in history for event in (item if isinstance(item, list) else [item])]
    return flat if is_list_of_objects(flat) else None


def _conversation(events: list[Record]) -> tuple[str, tuple[Step, ...]]:
    instruction, run = "", Conversation()
    for event in events:
        by_agent, text = _said(event)
        if not text:
            continue
        if by_agent:
            run.act(text)
        elif not run and not instruction and event.get("source") == "user":
            instruction = issue_text(text)
        elif run:
            run.see(text)
    return instruction, run.steps()


def _said(event: Record) -> tuple[bool, str]:
    """Return whether an event is an action of the agent, and its text."""
    if "kind" in event and not (
        {"action", "observation"} & event.keys() and isinstance(event.get("action"), str)
    ):
        return _said_to_sdk(event)
    if isinstance(name := event.get("observation"), str):
        return False, "" if name in _SILENT else message_text(event.get("content"))
    name, arguments = event.get("action"), mapping(event.get("args"))
    if not isinstance(name, str) or name in _SILENT:
        return False, ""
    if event.get("source") != "agent":
        return False, message_text(arguments.get("content"))
    return True, _joined(message_text(arguments.get("thought")), name, arguments)


def _said_to_sdk(event: Record) -> tuple[bool, str]:
    """Read the events of OpenHands 1, which name their class as kind."""
    kind, by_agent = event.get("kind"), event.get("source") == "agent"
    if kind == "ActionEvent":
        return True, _joined(
            message_text(event.get("thought")),
            str(event.get("tool_name") or ""),
            mapping(event.get("action")),
        )
    if kind == "MessageEvent":
        return by_agent, message_text(mapping(event.get("llm_message")).get("content"))
    if kind == "ObservationEvent":
        seen = mapping(event.get("observation"))
        return False, message_text(seen.get("content")) or message_text(seen.get("output"))
    return False, message_text(event.get("error")) if kind == "AgentErrorEvent" else ""


def _joined(thought: str, name: str, arguments: Record) -> str:
    kept = {
        key: value
        for key, value in arguments.items()
        if key not in _NOISE and value not in (None, "", [], {})
    }
    if len(kept) == 1 and isinstance(value := next(iter(kept.values())), str):
        done = value if name == "message" else f"{name}: {value}"
    else:
        done = f"{name}({arguments_text(kept) if kept else ''})"
    return "\n".join(filter(None, (thought.strip(), done)))
