"""τ-bench v1 results (JSON lists of runs) and τ²-bench results (a JSON object, or a folder)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    AGENT_OPTION,
    Draft,
    Drafts,
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
    begins_json,
    is_object_with,
    json_value,
    listed_records,
    one_object,
)
from certify_assets.corpora.formats.texts import (
    Message,
    calls_text,
    is_id,
    is_list_of_objects,
    mapping,
    message_text,
    objects,
    steps_of_messages,
    text_of,
)
from certify_assets.errors import InputError

_DOMAIN = "prefix of task ids (retail, airline, …); read from the file where it is not given"
_TAU_MARKS = (re.compile(rb'"task_id"\s*:'), re.compile(rb'"traj"\s*:\s*\['))
_TAU2_MARKS = (
    re.compile(rb'"environment_info"\s*:\s*\{'),
    re.compile(rb'"(?:agent|user)_info"\s*:\s*\{'),
)
# by domain, a tool of which every run calls one or another
_TOOLS = {
    "retail": re.compile(
        rb'"(?:find_user_id_by_email|find_user_id_by_name_zip|get_order_details|'
        rb'get_product_details)"'
    ),
    "airline": re.compile(
        rb'"(?:search_direct_flight|search_onestop_flight|get_reservation_details|'
        rb'list_all_airports)"'
    ),
}
# of file names: the domain, the range of tasks, and the time
_RANGE = re.compile(r"_range_-?\d+-+\d+(?=_|$)")
_STAMP = re.compile(r"_\d{10}$")
_SIMULATIONS = re.compile(rb'"simulations"\s*:\s*\[\s*(?:\{|$)')
_INFRASTRUCTURE = frozenset({"infrastructure_error", "unexpected_error"})
_SCENARIO = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
_SPEAKERS = (("assistant", "agent"), ("user", "user"))


def _is_list(head: bytes) -> bool:
    return begins_json(head, b"[") and all(mark.search(head) for mark in _TAU_MARKS)


@corpus_format(
    title="τ-bench v1 results (JSON list of runs)",
    suffixes=(".json",),
    domain="customer_service",
    fits=lambda file: _is_list(file.head(HEAD)),
    label_source="state of the database after the run, compared by the harness",
    marks={},
    options={"domain": _DOMAIN, **AGENT_OPTION},
)
def taubench_v1(files: FileSet, reading: Reading) -> Drafts:
    """Read the runs of every result list."""
    for file, data in contents(files, reading):
        if not _is_list(data[:HEAD]):
            reading.other(file, "is not a JSON list of runs with task_id and traj.")
            continue
        if (runs := json_document(file, data, reading)) is None:
            continue
        domain = reading.options.get("domain") or _domain(file, data)
        # no record names its agent: the file does, with task range and time stamp
        stem = _STAMP.sub("", _RANGE.sub("", PurePosixPath(file.name).stem))
        named = re.sub(rf"[-_]{re.escape(domain)}$", "", stem) or stem
        agent = reading.agent_in_name(file, named)
        reading.sha256(file)
        for row, found in listed_records(runs):
            where = f"{file.name} row {row}"
            record = usable(found, where, reading, _tau_problem)
            if record is None:
                continue
            info = mapping(record.get("info"))
            if "error" in info or not record["traj"]:
                words = "holds an error report instead of a run."
                reading.drop("infrastructure_error", f"{where} {words}")
                continue
            yield Draft(
                task_id=f"{domain}/{record['task_id']}",
                agent=agent,
                instruction=text_of(mapping(info.get("task")).get("instruction")),
                steps=steps_of_messages(map(Message.of, record["traj"]), reading),
                outcome=record.get("reward"),
                outcome_name="reward",
                origin=reading.origin(file, row),
                # the task index in some forks: it says nothing of the attempt
                repetition=str(record.get("trial")),
            )


def _tau_problem(record: Record) -> str | None:
    if not is_id(record.get("task_id")):
        return f"its task_id is {record.get('task_id')!r}"
    if not is_list_of_objects(record.get("traj")):
        return "its traj is not a list of messages"
    return None


def _domain(file: SourceFile, data: bytes) -> str:
    """Derive the domain from the file's name or else from the tools that its agents called."""
    words = set(re.split(r"[^a-z]+", file.name.lower()))
    named = [domain for domain in _TOOLS if domain in words]
    called = [domain for domain, tools in _TOOLS.items() if tools.search(data)]
    for found in (named, called):
        if len(found) == 1:
            return found[0]
    raise InputError(
        f"{file.name} does not show which τ-bench domain it is of; name it with the "
        "option domain, for example domain=retail."
    )


@dataclass(frozen=True)
class _Header:
    """What a file of results says of all its simulations."""

    file: str
    domain: str
    agent: str
    tasks: Mapping[str, Record]
    listed: frozenset[str]
    # simulations in files of their own that were read
    seen: set[str] = field(default_factory=set)

    def problem(self, record: Record) -> str | None:
        """Say what is wrong with a simulation."""
        if not self.domain:
            return f"{self.file} does not name its domain; give it with the option domain"
        for key in ("id", "task_id"):
            if not is_id(record.get(key)):
                return f"its {key} is {record.get(key)!r}"
        for key in ("messages", "ticks"):
            if record.get(key) is not None and not is_list_of_objects(record[key]):
                return f"its {key} are not a list of objects"
        return None


@corpus_format(
    title="τ²-bench results (JSON file, or folder of results.json and simulations)",
    suffixes=(".json",),
    domain="customer_service",
    fits=begins_with(*_TAU2_MARKS),
    label_source="the harness's checks after the run (database, actions, assertions), "
    "success at reward 1",
    marks={},
    options={"domain": _DOMAIN, **AGENT_OPTION},
)
def tau2(files: FileSet, reading: Reading) -> Drafts:
    """Read result files and folders of simulations."""
    folders = _folders(files, reading)
    attempts: Counter[tuple[str, str, int]] = Counter()
    for file, data in contents(files, reading):
        place = PurePosixPath(file.plain_name)
        header = folders.get(str(place.parent.parent))
        if header is not None and place.parent.name == "simulations":
            record = one_object(data)
            # a broken file is counted as such and not as missing too
            header.seen.update({place.stem, str(mapping(record).get("id"))})
            yield from _runs(file, header, [record], attempts, reading)
        elif not is_object_with(data[:HEAD], _TAU2_MARKS):
            reading.other(file, "is not a JSON object with info and simulations of τ²-bench.")
        elif str(place.parent) in folders and folders[str(place.parent)].file == file.name:
            reading.sha256(file)
        elif (document := json_document(file, data, reading)) is not None:
            header, runs = _header(file, document, reading), document.get("simulations")
            found = runs if isinstance(runs, list) else []
            yield from _runs(file, header, found, attempts, reading)
    for header in folders.values():
        for identity in sorted(header.listed - header.seen):
            reading.drop(
                "no_trajectory",
                f"{header.file} lists the simulation {identity}, which has no file in simulations.",
            )
        if not header.seen | header.listed:
            reading.drop(
                "file_ends_early",
                f"{header.file} holds no simulations, and no folder simulations is next to it.",
            )


def _folders(files: FileSet, reading: Reading) -> dict[str, _Header]:
    """Read the results.json of folders that keep every simulation in a file of its own."""
    headers: dict[str, _Header] = {}
    for file in files.matching("*results.json", "*results.json.gz"):
        # what is broken is counted where every file is read
        with suppress(BrokenFileError, ValueError):
            data = file.read()
            if is_object_with(data[:HEAD], _TAU2_MARKS) and not _SIMULATIONS.search(data):
                folder = str(PurePosixPath(file.name).parent)
                headers[folder] = _header(file, json_value(data), reading)
    return headers


def _header(file: SourceFile, document: Record, reading: Reading) -> _Header:
    info = mapping(document.get("info"))
    agent, about = mapping(info.get("agent_info")), mapping(info.get("environment_info"))
    named = filter(None, (text_of(agent.get(key)) for key in ("implementation", "llm")))
    tasks = {str(task.get("id")): task for task in objects(document.get("tasks"))}
    index = (str(entry.get("id")) for entry in objects(document.get("simulation_index")))
    return _Header(
        file=file.name,
        # task ids are those of a domain, which becomes their prefix
        domain=text_of(reading.options.get("domain") or about.get("domain_name")),
        agent=":".join(dict.fromkeys(named))
        or reading.agent_in_name(file, PurePosixPath(file.plain_name).stem),
        tasks=tasks,
        listed=frozenset(index),
    )


def _runs(
    file: SourceFile,
    header: _Header,
    records: Iterable[Any],
    attempts: Counter[tuple[str, str, int]],
    reading: Reading,
) -> Drafts:
    """Read the simulations of one file."""
    reading.sha256(file)
    sound: list[tuple[int, Record]] = []
    for row, found in enumerate(records, 1):
        record = found if isinstance(found, dict | str) else f"it is {type(found).__name__}"
        where = f"{file.name} row {row}"
        if (simulation := usable(record, where, reading, header.problem)) is not None:
            sound.append((row, simulation))
    corrected = _renumbered(sound, {name: _Checks.of(task) for name, task in header.tasks.items()})
    for row, record in sound:
        origin = reading.origin(file, row)
        name: str | None = str(record["task_id"])
        if row in corrected:
            name = corrected[row]
        steps = steps_of_messages(_said(record), reading)
        if name is None:
            reading.drop(
                "unknown_task",
                f"{origin} was checked for another task than {record['task_id']!r}, which it "
                "names.",
            )
        elif text_of(record.get("termination_reason")) in _INFRASTRUCTURE:
            reading.drop(
                "infrastructure_error",
                f"{origin} was ended by {record['termination_reason']}, not by the agent.",
            )
        elif not steps:
            reading.drop("no_trajectory", f"{origin} has neither messages nor ticks.")
        else:
            task, trial = f"{header.domain}/{name}", record.get("trial")
            attempt = trial if type(trial) is int and 0 <= trial < 1 << 31 else 0
            # another file has a run of that number: the next free one
            while attempts[task, header.agent, attempt]:
                attempt += 1
            attempts[task, header.agent, attempt] += 1
            yield Draft(
                task_id=task,
                agent=header.agent,
                instruction=_instruction(header.tasks.get(name, {})),
                steps=steps,
                outcome=mapping(record.get("reward_info")).get("reward"),
                outcome_name="reward",
                origin=origin,
                trajectory_id=str(record["id"]),
                attempt=attempt,
            )
    if moved := sum(task is not None for task in corrected.values()):
        reading.notes["runs whose task was corrected to the one that was checked"] += moved


def _said(simulation: Record) -> Iterator[Message]:
    """Go through the messages of a simulation, or what its ticks say where it has none."""
    names: dict[str, str] = {}
    messages = simulation.get("messages") or _spoken(objects(simulation.get("ticks")))
    for outer in messages:
        for message in objects(outer.get("tool_messages")) or (outer,):
            role, content = text_of(message.get("role")), message.get("content")
            calls = objects(message.get("tool_calls"))
            names |= {str(call.get("id")): str(call.get("name") or "") for call in calls}
            if role == "tool":
                name = names.get(str(message.get("id")), "")
                by_user = message.get("requestor") == "user"
                tool = f"{name} of the user" if by_user else name
                yield Message(role, message_text(content), tool=tool)
            elif role == "user":
                # the calls of the simulated user are text of the user
                said = (message_text(content), *calls_text(calls))
                yield Message(role, "\n".join(filter(None, said)))
            else:
                yield Message(role, message_text(_unwrapped(content)), calls_text(calls))


def _spoken(ticks: Iterable[Record]) -> Iterator[Record]:
    said = {"assistant": "", "user": ""}
    for tick in ticks:
        for role, who in _SPEAKERS:
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
    with suppress(ValueError, RecursionError):
        if isinstance(content, str) and content.startswith("{"):
            texts = list(json.loads(content).values())
            return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else content
    return content


def _instruction(task: Record) -> str:
    """Return what the simulated user wants, or the ticket where there is no user."""
    instructions = mapping(task.get("user_scenario")).get("instructions")
    if isinstance(instructions, dict):
        texts = (instructions.get(key) for key in _SCENARIO)
        return "\n".join(text for text in texts if isinstance(text, str))
    return text_of(instructions) or text_of(task.get("ticket"))


@dataclass(frozen=True)
class _Checks:
    """What a task checks, or a run was checked for."""

    actions: frozenset[str]
    assertions: tuple[str, ...]

    @classmethod
    def of(cls, task: Record) -> _Checks:
        """Return what a task checks."""
        criteria = mapping(task.get("evaluation_criteria"))
        texts = (criteria.get(key) for key in ("nl_assertions", "communicate_info"))
        said = [text for found in texts if isinstance(found, list) for text in found]
        return cls(_action_ids(objects(criteria.get("actions"))), tuple(map(str, said)))

    @classmethod
    def made(cls, simulation: Record) -> _Checks:
        """Return what a run was checked for."""
        info = mapping(simulation.get("reward_info"))
        actions = [mapping(check.get("action")) for check in objects(info.get("action_checks"))]
        asserted = [check.get("nl_assertion") for check in objects(info.get("nl_assertions"))]
        stated = [check.get("info") for check in objects(info.get("communicate_checks"))]
        return cls(_action_ids(actions), tuple(map(str, [*asserted, *stated])))


def _action_ids(actions: Iterable[Record]) -> frozenset[str]:
    return frozenset(str(action["action_id"]) for action in actions if action.get("action_id"))


def _renumbered(
    simulations: Iterable[tuple[int, Record]], tasks: Mapping[str, _Checks]
) -> dict[int, str | None]:
    """Find the runs whose checks are those of another task than the one they name.

    The task is None where more than one task may be meant.
    """
    found: dict[int, str | None] = {}
    silent: list[tuple[int, str, _Checks]] = []
    for row, record in simulations:
        checks, named = _Checks.made(record), str(record["task_id"])
        if not checks.actions:
            silent.append((row, named, checks))
        elif named not in tasks or not checks.actions & tasks[named].actions:
            shared = {task: len(checks.actions & tasks[task].actions) for task in tasks}
            most = max(shared.values(), default=0)
            if most:
                found[row] = _only([task for task, count in shared.items() if count == most])
    # where one run was numbered again all may be, those without actions too
    for row, named, checks in silent if found else ():
        alike = [task for task, own in tasks.items() if own == checks]
        if alike != [named]:
            found[row] = _only(alike)
    return found


def _only(tasks: list[str]) -> str | None:
    return tasks[0] if len(tasks) == 1 else None
