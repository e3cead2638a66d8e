"""Traces of any tool as runs: the names, texts and label of each run.

A format of traces is one module. It reads the records of its tool and yields spans, with the names
of `spans.NAMES`, and assessments. The runs are made from these::

    @trace_format(title=..., suffixes=..., fits=..., label_source=...)
    def some_tool(files: FileSet, reading: Reading) -> Said:
        for origin, record in records(files, reading, is_record):
            yield span_of(record["name"], record["attributes"], trace_id=..., origin=origin)
            yield Assessment(trace_id=..., name="correct", values=(True,), source="human")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from certify_assets.corpora.formats.base import (
    CorpusFormat,
    Draft,
    Drafts,
    Judgement,
    LeftOutError,
    Reading,
    corpus_format,
    joined_scores,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.messages import first_prompt, from_first, steps_of_messages
from certify_assets.corpora.formats.outcomes import Unclear, outcome_settings
from certify_assets.corpora.formats.records import Record, hashed, parsed
from certify_assets.corpora.formats.spans import NAMES, Assessment, Span
from certify_assets.corpora.formats.transcript import Trace, transcript
from certify_assets.errors import InputError
from certify_assets.tables.cells import name_of, number_of
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import words_of

Said = Iterator[Span | Assessment]

#: options of every format of traces
TRACE_OPTIONS: Mapping[str, str] = {
    "task_attribute": "attribute of a trace that names its task; input counts traces with the "
    "same input as one task",
    "attempt_attribute": "attribute of a trace that numbers the attempt",
    "agent_attribute": "attribute of a trace that names the agent",
    "agent": "agent of traces that name none",
    "label": "assessment, score, feedback or attribute that is the outcome",
    "label_sources": "sources whose labels count: human, code, api, llm_judge, or any",
}
_SAME_INPUT = "input"
_MOST_NAMES = 30


def trace_format(
    *label_sources: str, **about: Any
) -> Callable[[Callable[[FileSet, Reading], Said]], CorpusFormat]:
    """Register a function that reads files as spans and assessments, as the format of its name.

    By default labels from the `label_sources` count, or from any source if these are not given.
    """

    def register(read: Callable[[FileSet, Reading], Said]) -> CorpusFormat:
        def drafts(files: FileSet, reading: Reading) -> Drafts:
            return drafts_of_traces(read(files, reading), reading, label_sources)

        drafts.__name__ = read.__name__
        return corpus_format(options=TRACE_OPTIONS, **about)(drafts)

    return register


def drafts_of_traces(
    said: Iterable[Span | Assessment], reading: Reading, label_sources: Collection[str] = ()
) -> Drafts:
    """Turn spans and assessments, in any order, into runs; count those that cannot be used."""
    spans: dict[str, list[Span]] = {}
    about: dict[str, Record] = {}
    links: dict[str, str] = {}
    assessments: list[Assessment] = []
    for found in said:
        if isinstance(found, Assessment):
            assessments.append(found)
            continue
        if found.link and (not found.parent_id or found.trace_id not in links):
            links[found.trace_id] = found.link
        if found.span_id:
            spans.setdefault(found.trace_id, []).append(found)
        else:
            about[found.trace_id] = {**found.attributes, **about.get(found.trace_id, {})}
    traces = {span.span_id: trace_id for trace_id in spans for span in spans[trace_id]}
    of_trace: dict[str, list[Assessment]] = {}
    for one in assessments:
        trace_id = one.trace_id or traces.get(one.span_id, "")
        of_trace.setdefault(trace_id, []).append(one)
        if trace_id not in spans:
            place = f"trace {trace_id}" if trace_id else f"span {one.span_id}"
            reading.drop(
                "label_without_trace",
                f"the assessment {one.name!r} is of the {place}, which is not in these files; "
                "export its spans too.",
            )
    labels = _Labels(reading.options, label_sources, {one.name for one in assessments})
    for trace_id in spans:
        trace = Trace(spans[trace_id], of_trace.get(trace_id, []), about.get(trace_id, {}), reading)
        try:
            yield _draft(trace, labels, reading, links.get(trace_id, ""))
        except LeftOutError as left:
            reading.drop(left.reason, f"{trace.origin.file} trace {trace_id} {left.words}.")


def _draft(trace: Trace, labels: _Labels, reading: Reading, link: str) -> Draft:
    messages = transcript(trace)
    spoken = from_first(messages, "assistant", "tool")
    before = messages[: len(messages) - len(spoken)]
    asked = "\n".join(said.text for said in before if said.role == "user" and said.text)
    instruction = asked or first_prompt(messages)
    steps = steps_of_messages(spoken, reading)
    if not steps and not reading.judged:
        raise LeftOutError(
            "has no message of the agent and no call of a tool; record inputs and outputs of its "
            "spans",
            "no_trajectory",
        )
    task, agent = _task(trace, instruction, reading), _agent(trace, reading)
    attempt = _named(trace, "attempt", reading) or ""
    judgements = labels.judgements(trace) if reading.judged else ()
    label = Judgement("outcome", None)
    try:
        if not judgements:
            label = labels.outcome(trace)
            key = f"labels_from_{label.source or 'unknown'}"
            reading.label_facts[key] = reading.label_facts.get(key, 0) + 1
    except LeftOutError as left:
        if left.reason != "no_label" or not reading.options.get("keep_unlabelled"):
            raise
    return Draft(
        task_id=task,
        agent=agent,
        instruction=instruction,
        steps=steps,
        outcome=label.value,
        outcome_name=label.name,
        origin=trace.origin,
        trajectory_id=trace.trace_id,
        attempt=int(attempt) if attempt.isdecimal() and len(attempt) < 10 else None,
        named_agent=agent,
        judgements=judgements,
        link=link,
    )


def _named(trace: Trace, thing: str, reading: Reading) -> str | None:
    chosen = reading.options.get(f"{thing}_attribute")
    names = (str(chosen),) if chosen else NAMES[thing]
    levels = [trace.whole, trace.inner]
    if thing == "agent":
        # often only the calls of its model name it; those of tools name other tasks
        levels = [{**trace.inner, **trace.whole}]
    found = (level[name] for level in levels for name in names if name in level)
    return (name_of(next(found, None)) or "").strip() or None


def _task(trace: Trace, instruction: str, reading: Reading) -> str:
    if reading.options.get("task_attribute") != _SAME_INPUT:
        if named := _named(trace, "task", reading):
            return named
        if not (reading.judged and instruction.strip()):
            raise _unnamed(trace, "task", reading)
        reading.notes["runs that name no task, so runs with the same input are one task"] += 1
    if not instruction.strip():
        raise LeftOutError("names no task: it has no input; name an attribute instead", "no_task")
    return f"input-{hashed(instruction.strip())}"


def _agent(trace: Trace, reading: Reading) -> str:
    found = _named(trace, "agent", reading) or ""
    if found and not found.startswith("unknown_service"):
        return found
    constant = reading.options.get("agent")
    if not constant and reading.options.get("agent_attribute"):
        raise _unnamed(trace, "agent", reading)
    return str(constant or "unknown")


def _unnamed(trace: Trace, name: str, reading: Reading) -> LeftOutError:
    asked = reading.options.get(f"{name}_attribute")
    missing = f"it has no attribute {asked!r}, only" if asked else "its attributes are"
    same = ", or count traces with the same input as one task with task_attribute=input"
    there = sorted(
        name for name, value in trace.whole.items() if not isinstance(parsed(value), dict)
    )
    return LeftOutError(
        f"names no {name}: {missing} {', '.join(there[:_MOST_NAMES]) or 'no attribute'}; name one "
        f"with --option {name}_attribute=NAME{same if name == 'task' else ''}",
        f"no_{name}",
    )


class _Labels:
    """Which assessment counts, and from which sources."""

    def __init__(
        self, options: Mapping[str, Any], sources: Collection[str], names: Collection[str]
    ) -> None:
        self._name = str(options.get("label", ""))
        # next to assessments of this name an attribute may be what the agent says of itself
        self._is_attribute = self._name not in names
        given = options.get("label_sources")
        chosen = {word.lower() for word in (words_of("label_sources", given) if given else sources)}
        self._sources = set[str]() if "any" in chosen else chosen
        self._settings = outcome_settings(options)

    def outcome(self, trace: Trace) -> Judgement:
        """Return the label of a trace."""
        attribute = trace.whole.get(self._name, trace.inner.get(self._name))
        if self._is_attribute and attribute is not None:
            return self._agreed(self._name, [Assessment("", self._name, (attribute,), "attribute")])
        accepted = [
            one for one in trace.assessments if not self._sources or one.source in self._sources
        ]
        names = list(dict.fromkeys(one.name for one in accepted))
        if not self._name and len(names) > 1:
            raise InputError(
                f"the trace {trace.trace_id} has {len(names)} labels ({', '.join(names)}); "
                "name the one that is the outcome with --option label=NAME."
            )
        if named := [one for one in accepted if self._name in ("", one.name)]:
            return self._agreed(named[0].name, _of_whole(trace, named))
        there = sorted(
            {f"{one.name} ({one.source or 'source unknown'})" for one in trace.assessments}
        )
        label = f"label {self._name!r}" if self._name else "label"
        wanted = f" from {' or '.join(sorted(self._sources))}" if self._sources else ""
        remedy = "; keep such traces with the option keep_unlabelled"
        if there:
            choose = "choose with --option label=NAME and label_sources=SOURCE"
            remedy = f", only {', '.join(there)}; {choose}"
        raise LeftOutError(f"has no {label}{wanted}{remedy}", "no_label")

    def judgements(self, trace: Trace) -> tuple[Judgement, ...]:
        """Return the judgements of a trace as a whole or, without any, those of its parts."""
        whole = _of_whole(trace, trace.assessments)
        found = [Judgement(one.name, next(_given(one), None), one.source) for one in whole]
        # scores of several parts are no second scores of the run
        return tuple(joined_scores(found) if whole is trace.assessments else found)

    def _agreed(self, name: str, said: Sequence[Assessment]) -> Judgement:
        column = OutcomeColumn(name, self._settings)

        def read(value: Any) -> int | None:
            return None if isinstance(value, Unclear) else column.read(value)

        are_words = bool(self._settings.success or self._settings.failure)
        # by its outcome, which is None where it is not understood and refuses the import
        votes: dict[int | None, list[Any]] = {}
        for one in said:
            given = [*_given(one)]
            if are_words:
                given.sort(key=lambda value: number_of(value) is not None)
            first = next(iter(given), None)
            value = next((value for value in given if read(value) is not None), first)
            votes.setdefault(read(value), []).append(value)
        votes.pop(-1, None)
        if not votes:
            raise LeftOutError("has a label without a value", "no_label")
        ordered = [votes[None]] if None in votes else sorted(votes.values(), key=len)
        if len({*map(len, ordered)}) < len(ordered):
            raise LeftOutError(
                f"has {len(said)} labels that contradict each other; keep the right one",
                "contradictory_labels",
            )
        sources = "+".join(sorted({one.source for one in said}))
        return Judgement(name, ordered[-1][0], sources)


def _given(said: Assessment) -> Iterator[Any]:
    return (value for value in said.values if value not in (None, ""))


def _of_whole(trace: Trace, said: Sequence[Assessment]) -> Sequence[Assessment]:
    """Return the judgements of the whole or, without any, those of parts."""
    roots = {"", *(span.span_id for span in trace.roots)}
    return [one for one in said if one.span_id in roots] or said
