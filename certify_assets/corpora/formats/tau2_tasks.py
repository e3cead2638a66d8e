"""Which task a τ²-bench run was of: some published files number their runs anew, so that ``task_id`` names another task of the same file.

The checks that the harness kept with a run are those of its task, so they say which it was. They are used for that only and never rendered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from certify_assets.corpora.formats.messages import mapping

__all__ = ["Criteria", "criteria_of", "renumbered"]


@dataclass(frozen=True)
class Criteria:
    """What a task checks, or a run was checked for: ids of expected actions, and the other assertions as text."""

    actions: frozenset[str]
    assertions: tuple[str, ...]


def criteria_of(task: Mapping[str, Any]) -> Criteria:
    """Return what a task checks."""
    criteria = mapping(task.get("evaluation_criteria"))
    texts = [*_list(criteria.get("nl_assertions")), *_list(criteria.get("communicate_info"))]
    return Criteria(_ids(_list(criteria.get("actions"))), tuple(map(str, texts)))


def renumbered(
    simulations: Iterable[tuple[int, Mapping[str, Any]]], tasks: Mapping[str, Criteria]
) -> dict[int, str | None]:
    """Find the runs whose checks are those of another task than the one they name.

    Parameters
    ----------
    simulations : iterable of int and mapping
        Row and record of every run of a file.
    tasks : mapping
        Criteria of the tasks of that file, by id.

    Returns
    -------
    dict of int to (str or None)
        For those rows the id of the task, None where nobody can tell it. Empty where every run that has checks of actions has those of its task:
        a run that broke off has no checks, which says nothing by itself.
    """
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


def _checked(record: Mapping[str, Any]) -> Criteria:
    info = mapping(record.get("reward_info"))
    actions = [mapping(check).get("action") for check in _list(info.get("action_checks"))]
    asserted = [mapping(check).get("nl_assertion") for check in _list(info.get("nl_assertions"))]
    told = [mapping(check).get("info") for check in _list(info.get("communicate_checks"))]
    return Criteria(_ids(actions), tuple(map(str, [*asserted, *told])))


def _ids(actions: list[Any]) -> frozenset[str]:
    return frozenset(
        str(mapping(action)["action_id"]) for action in actions if mapping(action).get("action_id")
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
