"""Runs from traces: the end of the one way that the traces of all tools go.

A format of traces is one module. It reads the records of its tool and gives what they say under
names of `span_names.NAMES`; the task, the messages, the transcript and the label follow::

    @corpus_format(title=..., suffixes=..., fits=..., options=TRACE_OPTIONS, label_source=...)
    def some_tool(files: FileSet, reading: Reading) -> Drafts:
        traces = Traces()
        for origin, record in ...:
            traces.add(span_of(record["name"], record["attributes"], trace_id=..., origin=origin))
            traces.assess(Assessment(trace_id=..., name="correct", value=True, source="human"))
        yield from drafts_of_traces(traces, reading)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import sha256

from certify_assets.corpora.formats.base import Draft, Drafts, Reading
from certify_assets.corpora.formats.outcomes import Labelling
from certify_assets.corpora.formats.span_names import NAMES
from certify_assets.corpora.formats.span_transcript import transcript
from certify_assets.corpora.formats.span_tree import SpanTree, Traces
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


def drafts_of_traces(traces: Traces, reading: Reading, *label_sources: str) -> Drafts:
    """Turn traces into runs; what cannot be used is counted in the reading's tally.

    Labels from the `label_sources` count where no option names others; from any where none is
    given.
    """
    labelling = Labelling.of(reading.options, label_sources)
    for tree in traces.trees(reading):
        draft = _draft(tree, labelling, reading)
        if isinstance(draft, Draft):
            yield draft
        else:
            reason, words = draft
            reading.drop(reason, f"{tree.origin.file} trace {tree.trace_id} {words}")


def _draft(tree: SpanTree, labelling: Labelling, reading: Reading) -> Draft | tuple[str, str]:
    messages = transcript(tree)
    instruction = _instruction(messages)
    steps = steps_of_messages(from_first(messages, "assistant", "tool"), reading)
    if not steps:
        return (
            "no_trajectory",
            "has no message of the agent and no call of a tool; record inputs and outputs of its "
            "spans.",
        )
    task, agent = _task(tree, instruction, reading), _agent(tree, reading)
    for value, name in ((task, "task"), (agent, "agent")):
        if value is None:
            return f"no_{name}", f"names no {name}: {_remedy(tree, name, reading)}"
    attempt = _named(tree, "attempt", reading)
    if attempt is not None and not (attempt.isdecimal() and len(attempt) < 10):
        attempt = None
    if attempt is None and reading.options.get("attempt_attribute"):
        return (
            "unreadable_record",
            "has an attempt that is no whole number from 0; name another attribute with --option "
            "attempt_attribute=NAME.",
        )
    roots = {span.span_id for span in tree.roots}
    label = labelling.of_trace(tree.assessments, roots, tree.attribute)
    if label.problem and not (label.missing and reading.options.get("keep_unlabelled")):
        return label.reason, label.problem
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
        attempt=None if attempt is None else int(attempt),
        repetition=tree.trace_id,
        named_agent=str(agent),
    )


def _instruction(messages: tuple[Message, ...]) -> str:
    """Return all that the user said before the agent did anything."""
    spoken = len(from_first(messages, "assistant", "tool"))
    before = [said.text for said in messages[: len(messages) - spoken] if said.role == "user"]
    return "\n".join(filter(None, before)) or first_prompt(messages)


def _named(tree: SpanTree, thing: str, reading: Reading) -> str | None:
    chosen = reading.options.get(f"{thing}_attribute")
    names = (str(chosen),) if chosen else NAMES[thing]
    # a call of a tool has tasks of its own; an agent is often named by the calls of its model alone
    value = tree.attribute(*names, of_whole=thing != "agent")
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return str(value).strip() or None


def _task(tree: SpanTree, instruction: str, reading: Reading) -> str | None:
    if reading.options.get("task_attribute") == SAME_INPUT:
        text = instruction.strip()
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"input-{digest[:16]}" if text else None
    return _named(tree, "task", reading)


def _agent(tree: SpanTree, reading: Reading) -> str | None:
    found = _named(tree, "agent", reading)
    if found and not found.startswith("unknown_service"):
        return found
    asked, constant = (reading.options.get(name) for name in ("agent_attribute", "agent"))
    return str(constant) if constant else None if asked else "unknown"


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
