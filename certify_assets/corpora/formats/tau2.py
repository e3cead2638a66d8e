"""τ²-bench results: one JSON object, or a folder of results.json and one file a simulation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    AGENT_OPTION,
    Draft,
    Drafts,
    Origin,
    Reading,
    begins_with,
    contents,
    corpus_format,
    json_document,
    usable,
)
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import (
    HEAD,
    Record,
    decode,
    is_object_with,
    json_value,
    listed_records,
    one_object,
)
from certify_assets.corpora.formats.texts import (
    Message,
    arguments_text,
    calls_text,
    is_id,
    is_list_of_objects,
    listed,
    mapping,
    message_text,
    objects,
    steps_of_messages,
    text_of,
)

_SIMULATION = frozenset({"id", "task_id"})
_MARKS = (
    re.compile(rb'"environment_info"\s*:\s*\{'),
    re.compile(rb'"(?:agent|user)_info"\s*:\s*\{'),
)
_LIST = re.compile(rb'"simulations"\s*:\s*\[\s*(?:\{|$)')
_INFRASTRUCTURE = frozenset({"infrastructure_error", "unexpected_error"})
_SCENARIO = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
_AGENT = ("implementation", "llm")
_TICK = (("assistant", "agent"), ("user", "user"))


@dataclass(frozen=True)
class _Header:
    file: str
    domain: str
    agent: str
    instructions: Mapping[str, str]
    criteria: Mapping[str, Criteria]
    listed: frozenset[str] = frozenset()


@dataclass
class _Found:
    """Attempts that are taken, and simulations of folders that were read."""

    attempts: set[tuple[str, str, int]] = field(default_factory=set)
    simulations: dict[str, set[str]] = field(default_factory=dict)

    def attempt(self, task: str, agent: str, trial: Any) -> int:
        """Return the trial or, where another file has a run of that number, the next free one."""
        number = (
            trial
            if isinstance(trial, int) and not isinstance(trial, bool) and 0 <= trial < 1 << 31
            else 0
        )
        while (task, agent, number) in self.attempts:
            number += 1
        self.attempts.add((task, agent, number))
        return number


@corpus_format(
    title="τ²-bench results (JSON file, or folder of results.json and simulations)",
    suffixes=(".json",),
    domain="customer_service",
    fits=begins_with(*_MARKS),
    label_source="the harness's checks after the run (database, actions, assertions), "
    "success at reward 1",
    marks={},
    options={
        "domain": (
            "prefix of task ids (retail, airline, telecom …); read from the file where it is not "
            "given"
        ),
        **AGENT_OPTION,
    },
)
def tau2(files: FileSet, reading: Reading) -> Drafts:
    """Read result files and folders of simulations."""
    headers, found = _folder_headers(files, reading), _Found()
    for file, data in contents(files, reading):
        place = PurePosixPath(file.name)
        header = (
            headers.get(str(place.parent.parent)) if place.parent.name == "simulations" else None
        )
        if header is not None:
            yield from _read_simulation(file, decode(data), header, found, reading)
        elif not is_object_with(data[:HEAD], _MARKS):
            reading.other(file, "is not a JSON object with info and simulations of τ²-bench.")
        elif (own := headers.get(str(place.parent))) is not None and own.file == file.name:
            reading.sha256(file)
        else:
            yield from _read_results(file, data, found, reading)
    for folder, header in headers.items():
        _count_missing(header, found.simulations.get(folder, set()), reading)


def _folder_headers(files: FileSet, reading: Reading) -> dict[str, _Header]:
    """Read the results.json of folders that keep every simulation in a file of its own."""
    headers: dict[str, _Header] = {}
    for file in files.matching("*results.json", "*results.json.gz"):
        # what is broken is counted where every file is read
        with suppress(BrokenFileError, ValueError):
            data = file.read()
            if is_object_with(data[:HEAD], _MARKS) and not _LIST.search(data):
                header = _header(file, json_value(data), reading)
                headers[str(PurePosixPath(file.name).parent)] = header
    return headers


def _header(file: SourceFile, document: Record, reading: Reading) -> _Header:
    info = mapping(document.get("info"))
    domain = reading.options.get("domain") or mapping(info.get("environment_info")).get(
        "domain_name"
    )
    agent = mapping(info.get("agent_info"))
    named = dict.fromkeys(filter(None, (text_of(agent.get(key)) for key in _AGENT)))
    tasks = {str(record.get("id")): record for record in objects(document.get("tasks"))}
    return _Header(
        file=file.name,
        # task ids are those of a domain, which becomes their prefix
        domain=text_of(domain),
        agent=":".join(named) or reading.agent_in_name(file, PurePosixPath(file.plain_name).stem),
        instructions={name: instruction_text(task) for name, task in tasks.items()},
        criteria={name: criteria_of(task) for name, task in tasks.items()},
        listed=frozenset(
            str(entry.get("id")) for entry in objects(document.get("simulation_index"))
        ),
    )


def _read_results(file: SourceFile, data: bytes, found: _Found, reading: Reading) -> Drafts:
    document = json_document(file, data, reading)
    if document is None:
        return
    header = _header(file, document, reading)
    if not header.domain:
        reading.drop(
            "file_unreadable",
            f"{file.name} does not name its domain; give it with the option domain, such as "
            "domain=retail.",
        )
        return
    reading.sha256(file)
    records = [*listed_records(listed(document.get("simulations")))]
    sound = (
        (row, record)
        for row, record in records
        if isinstance(record, dict) and _problem(record, header) is None
    )
    others = renumbered(sound, header.criteria)
    for row, record in records:
        if row in others and isinstance(record, dict) and others[row] is None:
            reading.drop(
                "unknown_task",
                f"{file.name} row {row} was checked for another task than "
                f"{record['task_id']!r}, which it names.",
            )
        else:
            if row in others and isinstance(record, dict):
                record["task_id"] = others[row]
                reading.notes["runs whose task was corrected to the one that was checked"] += 1
            yield from _drafts(record, header, reading.origin(file, row), found, reading)


def _read_simulation(
    file: SourceFile, text: str, header: _Header, found: _Found, reading: Reading
) -> Drafts:
    record = one_object(text)
    folder = str(PurePosixPath(header.file).parent)
    # a broken file is counted as such and not as missing too
    name = PurePosixPath(file.plain_name).stem
    found.simulations.setdefault(folder, set()).update(
        {name} | ({str(record.get("id"))} if isinstance(record, dict) else set())
    )
    yield from _drafts(record, header, reading.origin(file), found, reading)


def _drafts(
    found_record: Record | str,
    header: _Header,
    origin: Origin,
    found: _Found,
    reading: Reading,
) -> Drafts:
    record = usable(found_record, str(origin), reading, lambda record: _problem(record, header))
    if record is None:
        return
    if text_of(record.get("termination_reason")) in _INFRASTRUCTURE:
        reading.drop(
            "infrastructure_error",
            f"{origin} was ended by {record['termination_reason']}, not by the agent.",
        )
        return
    steps = steps_of_messages(chat_messages(record), reading)
    if not steps:
        reading.drop("no_trajectory", f"{origin} has neither messages nor ticks.")
        return
    task = f"{header.domain}/{record['task_id']}"
    yield Draft(
        task_id=task,
        agent=header.agent,
        instruction=header.instructions.get(str(record["task_id"]), ""),
        steps=steps,
        outcome=mapping(record.get("reward_info")).get("reward"),
        outcome_name="reward",
        origin=origin,
        trajectory_id=str(record["id"]),
        attempt=found.attempt(task, header.agent, record.get("trial")),
    )


def _problem(record: Record, header: _Header) -> str | None:
    if not header.domain:
        return f"{header.file} does not name its domain"
    for key in sorted(_SIMULATION):
        if not is_id(record.get(key)):
            return f"its {key} is {record.get(key)!r}"
    for key in ("messages", "ticks"):
        if record.get(key) is not None and not is_list_of_objects(record[key]):
            return f"its {key} are not a list of objects"
    return None


def _count_missing(header: _Header, seen: set[str], reading: Reading) -> None:
    for identity in sorted(header.listed - seen):
        reading.drop(
            "no_trajectory",
            f"{header.file} lists the simulation {identity}, which has no file in simulations.",
        )
    if not seen and not header.listed:
        reading.drop(
            "file_ends_early",
            f"{header.file} holds no simulations, and there is no folder simulations next to it.",
        )


def chat_messages(simulation: Record) -> Iterator[Message]:
    """Go through the messages of a simulation, or what its ticks say where it has none."""
    names: dict[str, str] = {}
    for message in _flat(simulation.get("messages") or _spoken(simulation.get("ticks") or ())):
        role, calls = text_of(message.get("role")), objects(message.get("tool_calls"))
        content = message.get("content")
        names |= {str(call.get("id")): str(call.get("name") or "") for call in calls}
        if role == "tool":
            name = names.get(str(message.get("id")), "")
            by_user = message.get("requestor") == "user"
            yield Message(
                role, message_text(content), tool=f"{name} of the user" if by_user else name
            )
        elif role == "user":
            # the calls of the simulated user are text of the user
            asked = [
                f"{call.get('name')}({arguments_text(call.get('arguments'))})" for call in calls
            ]
            yield Message(role, "\n".join(filter(None, [message_text(content), *asked])))
        else:
            yield Message(role, message_text(_unwrapped(content)), calls_text(calls))


def instruction_text(task: Record) -> str:
    """What the simulated user wants, or the ticket where there is no user."""
    instructions = mapping(task.get("user_scenario")).get("instructions")
    if isinstance(instructions, dict):
        texts = (instructions.get(key) for key in _SCENARIO)
        return "\n".join(text for text in texts if isinstance(text, str))
    return text_of(instructions) or text_of(task.get("ticket"))


def _flat(messages: Iterable[Record]) -> Iterator[Record]:
    for message in messages:
        yield from objects(message.get("tool_messages")) or (message,)


def _spoken(ticks: Iterable[Record]) -> Iterator[Record]:
    said = {"assistant": "", "user": ""}
    for tick in ticks:
        for role, who in _TICK:
            heard = message_text(mapping(tick.get(f"{who}_chunk")).get("content"))
            calls = objects(tick.get(f"{who}_tool_calls"))
            said[role] += heard
            if calls or (said[role] and not heard):
                yield {"role": role, "content": said[role].strip(), "tool_calls": calls}
                said[role] = ""
            for reply in objects(tick.get(f"{who}_tool_results")):
                yield {**reply, "role": "tool"}
    for role, text in said.items():
        if text:
            yield {"role": role, "content": text.strip()}


def _unwrapped(content: Any) -> Any:
    """Return the text of a reply that is a JSON object with one text, as some agents answer."""
    if not isinstance(content, str) or not content.startswith("{"):
        return content
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError):
        return content
    texts = list(reply.values())
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else content


@dataclass(frozen=True)
class Criteria:
    """What a task checks, or a run was checked for."""

    actions: frozenset[str]
    assertions: tuple[str, ...]


def criteria_of(task: Record) -> Criteria:
    """Return what a task checks."""
    criteria = mapping(task.get("evaluation_criteria"))
    texts = [*listed(criteria.get("nl_assertions")), *listed(criteria.get("communicate_info"))]
    return Criteria(_ids(listed(criteria.get("actions"))), tuple(map(str, texts)))


def renumbered(
    simulations: Iterable[tuple[int, Record]], tasks: Mapping[str, Criteria]
) -> dict[int, str | None]:
    """Find the runs whose checks are those of another task than the one they name."""
    found: dict[int, str | None] = {}
    silent: list[tuple[int, str, Criteria]] = []
    owners: dict[str, set[str]] = {}
    for task, criteria in tasks.items():
        for action in criteria.actions:
            owners.setdefault(action, set()).add(task)
    for row, record in simulations:
        checks, named = _checked(record), str(record.get("task_id"))
        if not checks.actions:
            silent.append((row, named, checks))
        elif not checks.actions & tasks.get(named, Criteria(frozenset(), ())).actions:
            shared = {
                task: len(checks.actions & tasks[task].actions)
                for action in checks.actions
                for task in owners.get(action, ())
            }
            if shared:
                found[row] = _only(
                    [task for task, count in shared.items() if count == max(shared.values())]
                )
    if found:
        for row, named, checks in silent:
            alike = [task for task, criteria in tasks.items() if criteria == checks]
            if alike != [named]:
                found[row] = _only(alike)
    return found


def _only(tasks: list[str]) -> str | None:
    return tasks[0] if len(tasks) == 1 else None


def _checked(record: Record) -> Criteria:
    info = mapping(record.get("reward_info"))
    actions = [mapping(check).get("action") for check in listed(info.get("action_checks"))]
    asserted = [mapping(check).get("nl_assertion") for check in listed(info.get("nl_assertions"))]
    stated = [mapping(check).get("info") for check in listed(info.get("communicate_checks"))]
    return Criteria(_ids(actions), tuple(map(str, [*asserted, *stated])))


def _ids(actions: list[Any]) -> frozenset[str]:
    return frozenset(
        str(mapping(action)["action_id"]) for action in actions if mapping(action).get("action_id")
    )
