"""Traces of any tool as runs: what names the run, what was said in it, and its label.

A format of traces is one module. It reads the records of its tool and gives what they say under
names of `span_names.NAMES`; the task, the messages, the transcript and the label follow::

    @corpus_format(title=..., suffixes=..., fits=..., options=TRACE_OPTIONS, label_source=...)
    def some_tool(files: FileSet, reading: Reading) -> Drafts:
        traces = Traces()
        for origin, record in records(files, reading, is_record):
            traces.add(span_of(record["name"], record["attributes"], trace_id=..., origin=origin))
            traces.assess(Assessment(trace_id=..., name="correct", values=(True,), source="human"))
        yield from drafts_of_traces(traces, reading)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from certify_assets.corpora.formats.base import Draft, Drafts, LeftOutError, Reading
from certify_assets.corpora.formats.messages import first_prompt, from_first, steps_of_messages
from certify_assets.corpora.formats.outcomes import Unclear, outcome_settings
from certify_assets.corpora.formats.span_names import NAMES
from certify_assets.corpora.formats.spans import Assessment, SpanTree, Traces
from certify_assets.corpora.formats.transcript import transcript
from certify_assets.errors import InputError
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import words_of
from certify_assets.tables.table import number_of, word_of

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
_SAME_INPUT = "input"


def drafts_of_traces(traces: Traces, reading: Reading, *label_sources: str) -> Drafts:
    """Turn traces into runs; what cannot be used is counted.

    Labels from the `label_sources` count where no option names others; from any where none is
    given.
    """
    labels = _Labels(reading.options, label_sources)
    for tree in traces.trees(reading):
        try:
            yield _draft(tree, labels, reading)
        except LeftOutError as left:
            reading.drop(left.reason, f"{tree.origin.file} trace {tree.trace_id} {left.words}.")


def _draft(tree: SpanTree, labels: _Labels, reading: Reading) -> Draft:
    messages = transcript(tree)
    spoken = from_first(messages, "assistant", "tool")
    before = messages[: len(messages) - len(spoken)]
    asked = "\n".join(said.text for said in before if said.role == "user" and said.text)
    instruction = asked or first_prompt(messages)
    steps = steps_of_messages(spoken, reading)
    if not steps:
        raise LeftOutError(
            "no_trajectory",
            "has no message of the agent and no call of a tool; record inputs and outputs of its "
            "spans",
        )
    task, agent = _task(tree, instruction, reading), _agent(tree, reading)
    attempt = _named(tree, "attempt", reading)
    if attempt is not None and not (attempt.isdecimal() and len(attempt) < 10):
        if reading.options.get("attempt_attribute"):
            raise LeftOutError(
                "unreadable_record",
                "has an attempt that is no whole number from 0; name another attribute with "
                "--option attempt_attribute=NAME",
            )
        attempt = None
    try:
        outcome, label, source = labels.of_trace(tree)
        key = f"labels_from_{source or 'unknown'}"
        reading.label_facts[key] = reading.label_facts.get(key, 0) + 1
    except LeftOutError as left:
        if left.reason != "no_label" or not reading.options.get("keep_unlabelled"):
            raise
        outcome, label = None, "outcome"
    return Draft(
        task_id=task,
        agent=agent,
        instruction=instruction,
        steps=steps,
        outcome=outcome,
        outcome_name=label,
        origin=tree.origin,
        trajectory_id=tree.trace_id,
        attempt=None if attempt is None else int(attempt),
        repetition=tree.trace_id,
        named_agent=agent,
    )


def _named(tree: SpanTree, thing: str, reading: Reading) -> str | None:
    chosen = reading.options.get(f"{thing}_attribute")
    names = (str(chosen),) if chosen else NAMES[thing]
    # a call of a tool has tasks of its own; an agent is often named by the calls of its model alone
    value = tree.attribute(*names, whole_first=thing != "agent")
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return str(value).strip() or None


def _task(tree: SpanTree, instruction: str, reading: Reading) -> str:
    if reading.options.get("task_attribute") != _SAME_INPUT:
        return _named(tree, "task", reading) or _unnamed(tree, "task", reading)
    if not instruction.strip():
        raise LeftOutError("no_task", "names no task: it has no input; name an attribute instead")
    digest = sha256(instruction.strip().encode("utf-8", "surrogatepass")).hexdigest()
    return f"input-{digest[:16]}"


def _agent(tree: SpanTree, reading: Reading) -> str:
    found = _named(tree, "agent", reading)
    if found and not found.startswith("unknown_service"):
        return found
    if constant := reading.options.get("agent"):
        return str(constant)
    asked = reading.options.get("agent_attribute")
    return _unnamed(tree, "agent", reading) if asked else "unknown"


def _unnamed(tree: SpanTree, name: str, reading: Reading) -> str:
    asked = reading.options.get(f"{name}_attribute")
    missing = f"it has no attribute {asked!r}, only" if asked else "its attributes are"
    same = ", or count traces with the same input as one task with task_attribute=input"
    raise LeftOutError(
        f"no_{name}",
        f"names no {name}: {missing} {tree.attribute_names()}; name one with --option "
        f"{name}_attribute=NAME{same if name == 'task' else ''}",
    )


class _Labels:
    """Which assessment counts, and from which sources."""

    def __init__(self, options: Mapping[str, Any], sources: Collection[str]) -> None:
        self._name, self._attribute = options.get("label"), options.get("label_attribute")
        if self._name and self._attribute:
            raise InputError("the options label and label_attribute exclude each other; give one.")
        given = options.get("label_sources")
        chosen = {word.lower() for word in (words_of("label_sources", given) if given else sources)}
        self._sources = set[str]() if "any" in chosen else chosen
        self._settings = outcome_settings(options)

    def of_trace(self, tree: SpanTree) -> tuple[Any, str, str]:
        """Return the label of a trace, its name and its source."""
        if self._attribute:
            value = tree.attribute(str(self._attribute))
            if value is None:
                raise LeftOutError("no_label", f"has no attribute {self._attribute!r}")
            return self._agreed(str(self._attribute), [(value, "attribute")])
        accepted = [
            one for one in tree.assessments if not self._sources or one.source in self._sources
        ]
        names = list(dict.fromkeys(one.name for one in accepted))
        if self._name is None and len(names) > 1:
            raise InputError(
                f"the trace {tree.trace_id} has {len(names)} labels ({', '.join(names)}); "
                "name the one that is the outcome with --option label=NAME."
            )
        named = [one for one in accepted if one.name == (self._name or one.name)]
        if not named:
            raise LeftOutError("no_label", self._missing(tree.assessments))
        # what is said of the whole goes before what is said of a part
        roots = {"", *(span.span_id for span in tree.roots)}
        whole = [one for one in named if one.span_id in roots] or named
        return self._agreed(named[0].name, [(self._value(one), one.source) for one in whole])

    def _value(self, said: Assessment) -> Any:
        settings = self._settings
        found = [value for value in said.values if value not in (None, "")]
        first: list[Any] = []
        if settings.threshold is not None:
            first = [value for value in found if number_of(value) is not None]
        elif named := {*map(word_of, (*settings.success, *settings.failure))}:
            first = [value for value in found if word_of(value) in named]
            first += [value for value in found if number_of(value) is None]
        return next(iter([*first, *found]), None)

    def _missing(self, assessments: Sequence[Assessment]) -> str:
        wanted = " or ".join(sorted(self._sources))
        label = f"label {self._name!r}" if self._name else "label"
        found = sorted({f"{one.name} ({one.source or 'source unknown'})" for one in assessments})
        return f"has no {label}{f' from {wanted}' if wanted else ''}" + (
            f", only {', '.join(found)}; choose with --option label=NAME and label_sources=SOURCE"
            if found
            else "; keep such traces with the option keep_unlabelled"
        )

    def _agreed(self, name: str, said: list[tuple[Any, str]]) -> tuple[Any, str, str]:
        column = OutcomeColumn(name, self._settings)
        read = {
            None if isinstance(value, Unclear) else column.read(value): value for value, _ in said
        }
        read.pop(-1, None)
        if not read:
            raise LeftOutError("no_label", "has a label without a value")
        if len(read) > 1 and None not in read:
            raise LeftOutError(
                "contradictory_labels",
                f"has {len(said)} labels that contradict each other; keep the right one",
            )
        # one that is not understood refuses the import
        value = read.get(None, next(iter(read.values())))
        return value, name, "+".join(sorted({source for _, source in said}))
