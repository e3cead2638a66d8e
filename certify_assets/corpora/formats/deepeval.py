"""DeepEval results: test runs that it stores as JSON, and dumps of what `evaluate` returns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
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
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import from_first, messages_of, steps_of_messages
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    hashed,
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


def _fits(file: SourceFile) -> bool:
    return begins(file, b"{", *_MARKS)


@corpus_format(
    title="DeepEval test runs (JSON)",
    suffixes=(".json",),
    fits=_fits,
    label_source="metrics of the test cases",
    options={
        "agent": "agent of all runs; unknown where it is not given",
        "label": "metric whose success is the outcome; the success of all is it otherwise",
    },
)
def deepeval(files: FileSet, reading: Reading) -> Drafts:
    """Read one run a test case; attempts are test cases with the same input."""
    draft = partial(_draft, reading=reading)
    for file, document in reading.documents(reading.fitting(files, _fits)):
        yield from reading.runs(reading.placed(file, listed_records(_cases(document))), draft)


def _cases(document: Any) -> Iterator[Record]:
    found = snake(mapping(document))
    for name in _LISTS:
        yield from map(snake, objects(found.get(name)))


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
        task = f"input-{hashed(task)}"
    verdicts = [Judgement("success", case.get("success"))]
    verdicts += [
        Judgement(str(one.get("name")), one.get("success"))
        for one in metrics
        if one.get("name") != "success"
    ]
    return Draft(
        task_id=task,
        agent=str(reading.options.get("agent") or "unknown"),
        instruction=asked,
        steps=steps,
        **reading.chosen(origin, verdicts, default="success"),
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
