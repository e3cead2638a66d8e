"""DeepEval results: test runs that it stores as JSON, and dumps of what `evaluate` returns."""

from __future__ import annotations

from functools import partial

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Judgement,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
    words,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import from_first, messages_of, steps_of_messages
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    hashed,
    named,
    objects,
    snake,
    text_of,
)
from certify_assets.corpora.trajectory import Step

_LISTS = words(
    "testCases test_cases conversationalTestCases conversational_test_cases test_results"
)
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
    yield from reading.runs(reading.records(files, _is_case, under=_LISTS), draft)


def _is_case(record: Record) -> bool:
    return not snake(record).keys().isdisjoint(("actual_output", "turns", "metrics_data"))


def _draft(record: Record, origin: Origin, reading: Reading) -> Draft:
    case = snake(record)
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
