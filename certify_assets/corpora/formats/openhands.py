"""OpenHands evaluation outputs (output.jsonl): a record for each run, with events as history."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
    words,
)
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.messages import (
    Conversation,
    arguments_text,
    joined,
    message_text,
)
from certify_assets.corpora.formats.records import (
    LINES,
    Record,
    inside,
    is_id,
    is_list_of_objects,
    json_rows,
    listed,
    mapping,
    text_of,
)
from certify_assets.corpora.formats.swe_reports import Reports, issue_text, run_name, task_of
from certify_assets.corpora.trajectory import Step

_REQUIRED = frozenset({"instance_id", "history"})
_FIRST_LINES = 5
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
    """Whether one of the first lines of a file is an evaluation output."""
    if file.suffix not in LINES:
        return False
    first = (record for _, record in islice(json_rows(file), _FIRST_LINES))
    return any(isinstance(record, dict) and record.keys() >= _REQUIRED for record in first)


@corpus_format(
    title="OpenHands evaluation outputs (output.jsonl)",
    suffixes=(*LINES, ".json"),
    domain="software",
    fits=_fits,
    label_source="tests of the instance",
)
def openhands(files: FileSet, reading: Reading) -> Drafts:
    """Read the runs of every output file, with outcomes from reports."""
    names = {str(file.path) for file in files.matching("*")}
    # a file next to it holds the last attempts, where this one holds one of all attempts
    superseded = {
        name for name in names if _ATTEMPT.search(name) and _ATTEMPT.sub(".jsonl", name) in names
    }

    def named_tasks() -> Iterator[tuple[str, str]]:
        """Iterate over the file and task of every run in the files, in its last attempt."""
        for file in files.matching("*"):
            # what is broken is counted where every file is read
            with suppress(BrokenFileError):
                if str(file.path) not in superseded and _fits(file):
                    for _, record in json_rows(file):
                        if identity := text_of(inside(record, "instance_id")):
                            yield file.name, task_of(identity)

    reports = Reports(files, reading, named_tasks())

    def draft(record: Record, origin: Origin) -> Draft:
        if origin.file.removesuffix(".gz") in superseded:
            raise LeftOutError("is an attempt before the last", "superseded")
        return _draft(record, origin, reports)

    runs = reading.records(files, lambda record: not _REQUIRED.isdisjoint(record))
    yield from reading.runs(runs, draft)


def _draft(record: Record, origin: Origin, reports: Reports) -> Draft:
    identity, history = record.get("instance_id"), record.get("history")
    if not is_id(identity) or not str(identity).strip():
        raise LeftOutError("it has no instance_id")
    if not history:
        reason = "infrastructure_error" if record.get("error") else "no_trajectory"
        raise LeftOutError("holds no history of the run", reason)
    # former versions pair an action with its observation
    pairs = (item if isinstance(item, list) else [item] for item in listed(history))
    events = [event for pair in pairs for event in pair]
    if not events or not is_list_of_objects(events):
        raise LeftOutError("its history is not a list of events")
    asked, steps = _conversation(events)
    task, agent, outcome = task_of(str(identity)), _agent(record), _outcome(record)
    statement = text_of(inside(record, "instance", "problem_statement")).strip()
    return Draft(
        task_id=task,
        agent=agent or run_name(origin.file),
        instruction=statement or issue_text(text_of(record.get("instruction"))) or asked,
        steps=steps,
        outcome=reports.outcome(origin.file, task) if outcome is None else outcome,
        origin=origin,
        named_agent=agent,
    )


def _outcome(record: Record) -> Any:
    for report in (record.get("report"), inside(record, "test_result", "report")):
        resolved = inside(report, "resolved")
        if isinstance(resolved, int | float | str):
            if not resolved and inside(report, "error_eval") is True:
                said = "could not be evaluated, as its report says"
                raise LeftOutError(said, "infrastructure_error")
            return resolved
    return None


def _agent(record: Record) -> str:
    metadata = mapping(record.get("metadata"))
    models = (text_of(inside(metadata, key, "model")) for key in ("llm_config", "llm"))
    names = (text_of(metadata.get("agent_class")), next(filter(None, models), ""))
    return " ".join(filter(None, names))


def _conversation(events: list[Record]) -> tuple[str, tuple[Step, ...]]:
    instruction, run = "", Conversation()
    for event in events:
        by_agent, text = _said_to_sdk(event) if "kind" in event else _said(event)
        if text and by_agent:
            run.act(text)
        elif text and run:
            run.see(text)
        elif text and not instruction and event.get("source") == "user":
            instruction = issue_text(text)
    return instruction, run.steps()


def _said(event: Record) -> tuple[bool, str]:
    """Return whether an event is an action of the agent, and its text."""
    if isinstance(name := event.get("observation"), str):
        return False, "" if name in _SILENT else message_text(event.get("content"))
    name, arguments = event.get("action"), mapping(event.get("args"))
    if not isinstance(name, str) or name in _SILENT:
        return False, ""
    if event.get("source") != "agent":
        return False, message_text(arguments.get("content"))
    return True, _done(message_text(arguments.get("thought")), name, arguments)


def _said_to_sdk(event: Record) -> tuple[bool, str]:
    """Read the events of OpenHands 1, which name their class under kind."""
    kind, by_agent = event.get("kind"), event.get("source") == "agent"
    if kind == "ActionEvent":
        name = str(event.get("tool_name") or "")
        return True, _done(message_text(event.get("thought")), name, mapping(event.get("action")))
    if kind == "MessageEvent":
        return by_agent, message_text(inside(event, "llm_message", "content"))
    if kind == "ObservationEvent":
        seen = mapping(event.get("observation"))
        return False, message_text(seen.get("content")) or message_text(seen.get("output"))
    return False, message_text(event.get("error")) if kind == "AgentErrorEvent" else ""


def _done(thought: str, name: str, arguments: Record) -> str:
    kept = {
        key: value
        for key, value in arguments.items()
        if key not in _NOISE and value not in (None, "", [], {})
    }
    if len(kept) == 1 and isinstance(value := next(iter(kept.values())), str):
        done = value if name == "message" else f"{name}: {value}"
    else:
        done = f"{name}({arguments_text(kept) if kept else ''})"
    return joined(thought.strip(), done)
