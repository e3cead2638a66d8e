"""DeepEval results: test runs that it stores as JSON, and dumps of what `evaluate` returns."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Judgement,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.messages import from_first, messages_of, steps_of_messages
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    listed_records,
    mapping,
    named,
    objects,
    snake,
    text_of,
)
from certify_assets.corpora.trajectory import Step

_LISTS = ("test_cases", "conversational_test_cases", "test_results")
_MARKS = (
    rb'"(?:testCases|test_cases|test_results)"\s*:',
    rb'"(?:actualOutput|actual_output|turns)"\s*:',
)
_LONGEST_NAME = 80


@corpus_format(
    title="DeepEval test runs (JSON)",
    suffixes=(".json",),
    fits=lambda file: begins(file, b"{", *_MARKS),
    label_source="metrics of the test cases",
    options={
        "agent": "agent of all runs; unknown where it is not given",
        "label": "metric whose success is the outcome; the success of all is it otherwise",
    },
)
def deepeval(files: FileSet, reading: Reading) -> Drafts:
    """Read one run a test case; attempts are test cases with the same input."""

    def draft(record: Record, origin: Origin) -> Draft:
        return _draft(snake(record), origin, reading)

    for file, document in reading.documents(files):
        if not begins(file, b"{", *_MARKS):
            reading.other(file.name)
            continue
        cases = list(_cases(document))
        yield from reading.runs(reading.placed(file, listed_records(cases)), draft)


def _cases(document: Any) -> Iterator[Record]:
    found = snake(mapping(document))
    for name in _LISTS:
        yield from objects(found.get(name))


def _draft(case: Record, origin: Origin, reading: Reading) -> Draft:
    metrics = [snake(one) for one in objects(case.get("metrics_data"))]
    turns = messages_of(case.get("turns")) if case.get("turns") else ()
    asked = text_of(case.get("input")) or text_of(case.get("scenario"))
    answer = text_of(case.get("actual_output"))
    steps: tuple[Step, ...] = (Step(answer, ""),) if answer else ()
    if turns:
        steps = steps_of_messages(from_first(turns, "assistant", "tool"), reading)
    task = asked or text_of(case.get("name"))
    if not task:
        raise LeftOutError("it has neither an input nor a name")
    if len(task) > _LONGEST_NAME:
        task = f"input-{sha256(task.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    label = str(reading.options.get("label") or "success")
    outcome = case.get("success")
    if label != "success":
        outcome = next((one.get("success") for one in metrics if one.get("name") == label), None)
    return Draft(
        task_id=task,
        agent=str(reading.options.get("agent") or "unknown"),
        instruction=asked,
        steps=steps,
        outcome=outcome,
        outcome_name=label,
        origin=origin,
        repetition=str(origin.row),
        judgements=tuple(
            Judgement(
                name,
                one.get("score"),
                "llm_judge" if one.get("evaluation_model") else "",
            )
            for one in metrics
            if (name := named(one.get("name")))
        ),
    )
