"""Runs from traces: which attributes name task, attempt and agent, and which label counts.

A format of traces is one module that turns the records of its tool into `Span` and `Assessment`
and hands them to `drafts_of_traces`; `messages_of` reads chat messages in the shapes of all tools::

    @corpus_format(title=..., suffixes=..., fits=..., options=TRACE_OPTIONS, label_source=...)
    def some_tool(files: FileSet, reading: Reading) -> Drafts:
        traces = TraceRecords()
        for record, origin in ...:
            traces.add(Span(trace_id=..., asked=messages_of(record["input"]), origin=origin, ...))
            traces.assess(Assessment(trace_id=..., name="correct", value=True, source="human"))
        defaults = TraceDefaults(task=("task_id",))
        yield from drafts_of_traces(traces.trees(reading), reading, defaults)

`span_of` reads the attributes of OpenTelemetry spans in all conventions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from certify_assets.corpora.formats.base import Draft, Drafts, Reading
from certify_assets.corpora.formats.outcomes import Labelling
from certify_assets.corpora.formats.span_transcript import transcript
from certify_assets.corpora.formats.span_tree import SpanTree
from certify_assets.corpora.formats.texts import (
    Message,
    first_prompt,
    from_first,
    steps_of_messages,
)

#: options of every format of traces
TRACE_OPTIONS: Mapping[str, str] = {
    "task_attribute": "attribute of a trace that names its task; input counts traces with the "
    "same input as one task",
    "attempt_attribute": "attribute of a trace that numbers the attempt",
    "agent_attribute": "attribute of a trace that names the agent",
    "agent": "agent of traces that name none",
    "label": "name of the assessment, score or feedback that is the outcome",
    "label_attribute": "attribute of a trace that holds the outcome, in place of label",
    "label_sources": "sources whose labels count: human, code, llm_judge, or any",
}
SAME_INPUT = "input"


@dataclass(frozen=True, kw_only=True)
class TraceDefaults:
    """Attributes that name task, attempt and agent where no option does, in order of preference."""

    task: tuple[str, ...] = ("task_id", "task.id", "metadata.task_id")
    attempt: tuple[str, ...] = ("attempt", "metadata.attempt", "trial", "metadata.trial")
    agent: tuple[str, ...] = (
        "agent",
        "agent.name",
        "agent_name",
        "metadata.agent",
        "gen_ai.agent.name",
        "gen_ai.request.model",
        "llm.model_name",
        "service.name",
    )
    #: sources whose labels count where no option says so; empty for any
    label_sources: tuple[str, ...] = ()


def drafts_of_traces(
    trees: Iterable[SpanTree], reading: Reading, defaults: TraceDefaults | None = None
) -> Drafts:
    """Turn traces into runs; what cannot be used is counted in the reading's tally."""
    defaults = defaults or TraceDefaults()
    labelling = Labelling.of(reading.options, defaults.label_sources)
    for tree in trees:
        for number, note in (
            (tree.orphans, "spans whose parent is not in the trace"),
            (tree.cycles, "spans among their own parents"),
            (tree.repeated, "spans recorded twice"),
        ):
            if number:
                reading.notes[note] += number
        draft = _draft(tree, labelling, defaults, reading)
        if draft is not None:
            yield draft


def _draft(
    tree: SpanTree, labelling: Labelling, defaults: TraceDefaults, reading: Reading
) -> Draft | None:
    where = f"{tree.origin.file} trace {tree.trace_id}"
    messages = transcript(tree)
    instruction = _instruction(messages)
    steps = steps_of_messages(from_first(messages, "assistant", "tool"), reading)
    if not steps:
        reading.drop(
            "no_trajectory",
            f"{where} has no message of the agent and no call of a tool; record inputs and "
            "outputs of its spans.",
        )
        return None
    task, agent = _task(tree, instruction, defaults, reading), _agent(tree, defaults, reading)
    attempt = _attempt(tree, defaults, reading)
    for value, name in ((task, "task"), (agent, "agent")):
        if value is None:
            reading.drop(f"no_{name}", f"{where} names no {name}: {_remedy(tree, name, reading)}")
            return None
    if attempt is not None and attempt < 0:
        reading.drop(
            "unreadable_record",
            f"{where} has an attempt that is no whole number from 0; name another attribute with "
            "--option attempt_attribute=NAME.",
        )
        return None
    label = labelling.of_trace(
        tree.assessments, {span.span_id for span in tree.roots}, tree.attribute
    )
    if label.problem and not (label.missing and reading.options.get("keep_unlabelled")):
        reading.drop(label.reason, f"{where} {label.problem}")
        return None
    if label.value is not None:
        key = f"labels_from_{label.source or 'unknown'}"
        reading.label_facts[key] = reading.label_facts.get(key, 0) + 1
    return Draft(
        task_id=str(task),
        agent=str(agent),
        instruction=instruction,
        steps=steps,
        outcome=label.value,
        outcome_name=label.name,
        origin=tree.origin,
        trajectory_id=tree.trace_id,
        attempt=attempt,
        repetition=tree.trace_id,
        named_agent=str(agent),
    )


def _instruction(messages: tuple[Message, ...]) -> str:
    """Return all that the user said before the agent did anything."""
    spoken = len(from_first(messages, "assistant", "tool"))
    before = [said.text for said in messages[: len(messages) - spoken] if said.role == "user"]
    return "\n".join(filter(None, before)) or first_prompt(messages)


def _named(tree: SpanTree, option: str, reading: Reading, defaults: tuple[str, ...]) -> str | None:
    chosen = reading.options.get(option)
    names = [str(chosen)] if chosen else defaults
    # a call of a tool has tasks of its own; an agent is often named by the calls of its model alone
    value = tree.attribute(*names, of_whole=option != "agent_attribute")
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return str(value).strip() or None


def _task(
    tree: SpanTree, instruction: str, defaults: TraceDefaults, reading: Reading
) -> str | None:
    if reading.options.get("task_attribute") == SAME_INPUT:
        text = instruction.strip()
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"input-{digest[:16]}" if text else None
    return _named(tree, "task_attribute", reading, defaults.task)


def _agent(tree: SpanTree, defaults: TraceDefaults, reading: Reading) -> str | None:
    found = _named(tree, "agent_attribute", reading, defaults.agent)
    if found and not found.startswith("unknown_service"):
        return found
    constant = reading.options.get("agent")
    return str(constant) if constant else None if _asked_for(reading, "agent") else "unknown"


def _attempt(tree: SpanTree, defaults: TraceDefaults, reading: Reading) -> int | None:
    """Return the number of the attempt, -1 where the attribute that was asked for is no number."""
    found = _named(tree, "attempt_attribute", reading, defaults.attempt)
    if found is not None and found.isdecimal() and len(found) < 10:
        return int(found)
    return -1 if _asked_for(reading, "attempt") else None


def _asked_for(reading: Reading, name: str) -> bool:
    return bool(reading.options.get(f"{name}_attribute"))


def _remedy(tree: SpanTree, name: str, reading: Reading) -> str:
    asked = reading.options.get(f"{name}_attribute")
    if asked == SAME_INPUT and name == "task":
        return "it has no input; name an attribute with --option task_attribute=NAME."
    missing = f"it has no attribute {asked!r}, only" if asked else "its attributes are"
    same = ", or count traces with the same input as one task with task_attribute=input"
    return (
        f"{missing} {tree.attribute_names()}; name one with --option {name}_attribute=NAME"
        f"{same if name == 'task' else ''}."
    )
