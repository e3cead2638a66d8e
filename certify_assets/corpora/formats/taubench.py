"""τ-bench v1 results (JSON lists of runs) and τ²-bench results (a JSON object)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import (
    AGENT_OPTION,
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import Message, messages_of, steps_of_messages
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    inside,
    is_id,
    is_list_of_objects,
    listed,
    listed_records,
    mapping,
    objects,
    parsed,
    text_of,
)
from certify_assets.errors import InputError

_OPTIONS = {
    "domain": "prefix of task ids (retail, airline, …); read from the file where it is not given",
    **AGENT_OPTION,
}
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
# of file names: the range of tasks, and the time
_RANGE = re.compile(r"_range_-?\d+-+\d+(?=_|$)")
_STAMP = re.compile(r"_\d{10}$")
_INFRASTRUCTURE = ("infrastructure_error", "unexpected_error")
_SCENARIO = ("reason_for_call", "known_info", "unknown_info", "task_instructions")


def _is_tau(file: SourceFile) -> bool:
    return begins(file, b"[", rb'"task_id"', rb'"traj"\s*:\s*\[')


def _is_tau2(file: SourceFile) -> bool:
    marks = rb'"environment_info"\s*:\s*\{', rb'"(?:agent|user)_info"\s*:\s*\{'
    return begins(file, b"{", *marks)


@corpus_format(
    title="τ-bench v1 results (JSON list of runs)",
    suffixes=(".json",),
    domain="customer_service",
    fits=_is_tau,
    label_source="state of the database after the run",
    marks={},
    options=_OPTIONS,
)
def taubench_v1(files: FileSet, reading: Reading) -> Drafts:
    """Read the runs of every result list."""

    def draft(record: Record, origin: Origin) -> Draft:
        if not is_id(record.get("task_id")):
            raise LeftOutError(f"its task_id is {record.get('task_id')!r}")
        if not is_list_of_objects(record.get("traj")):
            raise LeftOutError("its traj is not a list of messages")
        info = mapping(record.get("info"))
        if "error" in info or not record["traj"]:
            raise LeftOutError("holds an error report instead of a run", "infrastructure_error")
        return Draft(
            task_id=f"{domain}/{record['task_id']}",
            agent=agent,
            instruction=text_of(inside(info, "task", "instruction")),
            steps=steps_of_messages(messages_of(record["traj"]), reading),
            outcome=record.get("reward"),
            outcome_name="reward",
            origin=origin,
            # the task index in some forks: it says nothing of the attempt
            repetition=str(record.get("trial")),
        )

    for file, runs in reading.documents(files, _is_tau):
        domain = reading.options.get("domain") or _domain(file)
        # no record names its agent: the file does, with task range and time stamp
        stem = _STAMP.sub("", _RANGE.sub("", file.path.stem))
        named = re.sub(rf"[-_]{re.escape(domain)}$", "", stem) or stem
        agent = reading.agent_in_name(file.name, named)
        yield from reading.runs(reading.placed(file, listed_records(runs)), draft)


def _domain(file: SourceFile) -> str:
    """Derive the domain from the file's name or else from the tools that its agents called."""
    words = set(re.split(r"[^a-z]+", file.name.lower()))
    named = [domain for domain in _TOOLS if domain in words]
    found = named or [domain for domain, tools in _TOOLS.items() if tools.search(file.read())]
    if len(found) != 1:
        raise InputError(
            f"{file.name} does not show its τ-bench domain; name it with the option domain, for "
            "example domain=retail."
        )
    return found[0]


@corpus_format(
    title="τ²-bench results (JSON file)",
    suffixes=(".json",),
    domain="customer_service",
    fits=_is_tau2,
    label_source="checks of the harness after the run",
    marks={},
    options=_OPTIONS,
)
def tau2(files: FileSet, reading: Reading) -> Drafts:
    """Read result files."""

    def draft(record: Record, origin: Origin) -> Draft:
        for key in ("id", "task_id"):
            if not is_id(record.get(key)):
                raise LeftOutError(f"its {key} is {record.get(key)!r}")
        name, given = checked[origin.row], str(record["task_id"])
        if name is None:
            said = f"was checked for another task than {given!r}, which it names"
            raise LeftOutError(said, "unknown_task")
        ended = record.get("termination_reason")
        if ended in _INFRASTRUCTURE:
            raise LeftOutError(f"was ended by {ended}, not by the agent", "infrastructure_error")
        if name != given:
            reading.notes["runs whose task was corrected to the one that was checked"] += 1
        return Draft(
            # task ids are those of a domain, which becomes their prefix
            task_id=f"{domain}/{name}",
            agent=agent,
            instruction=_instruction(tasks.get(name, {})),
            steps=steps_of_messages(_said(record), reading),
            outcome=inside(record, "reward_info", "reward"),
            outcome_name="reward",
            origin=origin,
            trajectory_id=str(record["id"]),
        )

    for file, document in reading.documents(files, _is_tau2):
        info, simulations = mapping(document.get("info")), listed(document.get("simulations"))
        if not simulations:
            said = f"{file.name} holds no simulations; save the run as one file."
            reading.drop("file_ends_early", said)
            continue
        in_file = text_of(inside(info, "environment_info", "domain_name"))
        domain = str(reading.options.get("domain") or in_file)
        if not domain:
            raise InputError(
                f"{file.name} does not name its domain; give it with the option domain."
            )
        named = (text_of(inside(info, "agent_info", key)) for key in ("implementation", "llm"))
        agent = ":".join(dict.fromkeys(filter(None, named)))
        agent = agent or reading.agent_in_name(file.name, file.path.stem)
        tasks = {str(task.get("id")): task for task in objects(document.get("tasks"))}
        checked = _tasks_checked(simulations, tasks)
        yield from reading.runs(reading.placed(file, listed_records(simulations)), draft)


def _said(simulation: Record) -> tuple[Message, ...]:
    messages = [
        message
        for outer in objects(simulation.get("messages"))
        for message in objects(outer.get("tool_messages")) or [outer]
    ]
    return messages_of(
        [_unwrapped(one) if one.get("role") == "assistant" else one for one in messages]
    )


def _unwrapped(message: Record) -> Record:
    """Return the text of a reply that is a JSON object with one text, as some agents answer."""
    reply = mapping(parsed(message.get("content")))
    (text,) = reply.values() if len(reply) == 1 else ("",)
    return {**message, "content": text} if text_of(text) else message


def _instruction(task: Record) -> str:
    """Return the request of the simulated user, or the ticket if there is no user."""
    instructions = inside(task, "user_scenario", "instructions")
    if isinstance(instructions, dict):
        texts = (instructions.get(key) for key in _SCENARIO)
        return "\n".join(text for text in texts if isinstance(text, str))
    return text_of(instructions) or text_of(task.get("ticket"))


class _Checks(NamedTuple):
    """The checks of a task, or the checks made on a run."""

    actions: frozenset[str]
    assertions: tuple[str, ...]


def _checks_of(task: Record) -> _Checks:
    """Return the checks of a task."""
    criteria = mapping(task.get("evaluation_criteria"))
    said = [*listed(criteria.get("nl_assertions")), *listed(criteria.get("communicate_info"))]
    return _Checks(_action_ids(objects(criteria.get("actions"))), tuple(map(str, said)))


def _checks_made(simulation: Any) -> _Checks:
    """Return the checks made on a run."""
    info = mapping(inside(simulation, "reward_info"))
    actions = [mapping(check.get("action")) for check in objects(info.get("action_checks"))]
    asserted = [check.get("nl_assertion") for check in objects(info.get("nl_assertions"))]
    stated = [check.get("info") for check in objects(info.get("communicate_checks"))]
    return _Checks(_action_ids(actions), tuple(map(str, [*asserted, *stated])))


def _action_ids(actions: Iterable[Record]) -> frozenset[str]:
    return frozenset(str(action["action_id"]) for action in actions if action.get("action_id"))


def _tasks_checked(simulations: Iterable[Any], tasks: dict[str, Record]) -> dict[int, str | None]:
    """Return the task of every run by its row: the one it names, unless its checks belong to
    another.

    The task is None if several others may be meant.
    """
    rows = list(enumerate(simulations, 1))
    found: dict[int, str | None] = {row: str(inside(run, "task_id")) for row, run in rows}
    checks = {name: _checks_of(task) for name, task in tasks.items()}
    made = {row: _checks_made(run) for row, run in rows}
    corrected = False
    for row, (actions, _) in made.items():
        known = checks.get(str(found[row]), _Checks(frozenset(), ()))
        if actions and not actions & known.actions:
            shared = {name: len(actions & check.actions) for name, check in checks.items()}
            if most := max(shared.values(), default=0):
                found[row] = _only(name for name, count in shared.items() if count == most)
                corrected = True
    # where one run was numbered again all may be, those without actions too
    for row, run_checks in made.items() if corrected else ():
        if not run_checks.actions:
            found[row] = _only(name for name, check in checks.items() if check == run_checks)
    return found


def _only(tasks: Iterable[str]) -> str | None:
    names = list(tasks)
    return names[0] if len(names) == 1 else None
