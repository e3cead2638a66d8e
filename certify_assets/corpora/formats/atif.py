"""Agent Trajectory Interchange Format (ATIF): one JSON document of steps, written by Harbor's agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from certify_assets.corpora.formats.base import Reading, excerpt
from certify_assets.corpora.formats.messages import arguments_text, mapping, message_text
from certify_assets.corpora.schema import Step

__all__ = ["is_atif", "run_of_documents"]


def is_atif(document: Any) -> bool:
    """Say whether a JSON value is a trajectory: it names a version of the format and has steps."""
    version = mapping(document).get("schema_version")
    return (
        isinstance(version, str)
        and version.startswith("ATIF-")
        and isinstance(document.get("steps"), list)
    )


def run_of_documents(
    documents: Sequence[Mapping[str, Any]], reading: Reading
) -> tuple[str, tuple[Step, ...]]:
    """Return the instruction and the steps of a run, which may go on in further documents.

    The instruction is what the user said before the agent's first step. System messages, copies of earlier context and runs of subagents
    (counted in the notes of the tally) are left out.
    """
    asked: list[str] = []
    steps: list[tuple[str, list[str]]] = []
    for entry in _entries(documents, reading):
        source, said = entry.get("source"), message_text(entry.get("message"))
        if source == "agent":
            steps.append((_action(entry, said), _observations(entry)))
        elif source == "user" and not steps:
            asked.append(said)
        elif source == "user":
            steps[-1][1].append(f"user: {said}")
    text = "\n".join(part for part in asked if part)
    return text, tuple(Step(excerpt(action), excerpt("\n".join(seen))) for action, seen in steps)


def _entries(
    documents: Iterable[Mapping[str, Any]], reading: Reading
) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if (
            isinstance(document.get("subagent_trajectories"), list)
            and document["subagent_trajectories"]
        ):
            reading.tally.notes["runs of subagents left out"] += len(
                document["subagent_trajectories"]
            )
        for entry in document["steps"]:
            if not isinstance(entry, Mapping):
                reading.tally.notes["steps that are not objects left out"] += 1
            elif not entry.get("is_copied_context"):
                yield entry


def _action(entry: Mapping[str, Any], said: str) -> str:
    thought, calls = entry.get("reasoning_content"), entry.get("tool_calls")
    parts = [thought if isinstance(thought, str) else "", said]
    for call in calls if isinstance(calls, list) else []:
        if name := mapping(call).get("function_name"):
            parts.append(f"{name}({arguments_text(call.get('arguments'))})")
    return "\n".join(part for part in parts if part)


def _observations(entry: Mapping[str, Any]) -> list[str]:
    results = mapping(entry.get("observation")).get("results")
    texts = (
        [message_text(mapping(result).get("content")) for result in results]
        if isinstance(results, list)
        else []
    )
    return [text for text in texts if text]
