"""Results of promptfoo, DeepEval and lm-evaluation-harness: one question, one answer, metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    AGENT_OPTION,
    Draft,
    Drafts,
    Judgement,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
    joined_scores,
    words,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.messages import (
    from_first,
    messages_of,
    steps_of_messages,
    value_text,
)
from certify_assets.corpora.formats.records import (
    JSON,
    LINES,
    Record,
    begins,
    has_fields,
    hashed,
    inside,
    is_id,
    listed,
    mapping,
    named,
    objects,
    snake,
    text_of,
)
from certify_assets.corpora.trajectory import Step


def _answered(answer: str) -> tuple[Step, ...]:
    return (Step(answer, ""),) if answer else ()


_RESULT = {"promptIdx", "testIdx", "testCase", "provider"}
_RESULTS = (rb'"gradingResult"\s*:', rb'"(?:promptIdx|promptId)"\s*:')
# assertions that a language model or an embedding answers
_MODEL_GRADED = re.compile(
    r"llm|model-graded|factuality|relevance|context-|g-eval|similar|classifier|rubric|moderation"
    r"|pi$"
)
# promptfoo's code of a test that ended in an error, not in a failed assertion
_ERROR = 2


@corpus_format(
    title="promptfoo results (JSON and JSON lines)",
    suffixes=JSON,
    fits=lambda file: begins(file, b"{", *_RESULTS),
    label_source="assertions of the tests",
    options={
        "agent": "agent of all runs; the provider where it is not given",
        "label": "metric or assertion that is the outcome; by default the verdict of all",
    },
)
def promptfoo(files: FileSet, reading: Reading) -> Drafts:
    """Read one run for each result; attempts are results of the same variables."""

    def draft(record: Record, origin: Origin) -> Draft:
        if record.get("failureReason") == _ERROR:
            raise LeftOutError("ended with an error of the provider", "infrastructure_error")
        provider = mapping(record["provider"])
        agent = text_of(provider.get("label")) or text_of(provider.get("id"))
        graded = inside(record, "gradingResult", "componentResults")
        judgements = tuple(map(_assertion, objects(graded)))
        return Draft(
            task_id=_test(record),
            agent=str(reading.options.get("agent") or agent or "unknown"),
            instruction=text_of(inside(record, "prompt", "raw")),
            steps=_answered(value_text(inside(record, "response", "output"))),
            **_outcome(reading, origin, record, judgements),
            origin=origin,
            trajectory_id=named(record.get("id")),
            named_agent=agent,
            judgements=tuple(joined_scores(judgements)),
        )

    results = reading.records(files, lambda row: row.keys() >= _RESULT, under=["results.results"])
    yield from reading.runs(results, draft)


def _outcome(
    reading: Reading, origin: Origin, record: Record, metrics: Sequence[Judgement]
) -> dict[str, Any]:
    """Return the outcome: success, the verdict of all metrics, or the result of one metric."""
    verdicts = [Judgement("success", record.get("success"))]
    verdicts += [one for one in metrics if one.name != "success"]
    return reading.chosen(origin, verdicts, default="success")


def _test(record: Record) -> str:
    """Return the description of a test, or a hash of its variables, which may hold the solution."""
    if described := named(inside(record, "testCase", "description")):
        return described
    values = mapping(record.get("vars")) or mapping(inside(record, "testCase", "vars"))
    if not values:
        return f"test {record['testIdx']}"
    text = json.dumps(values, ensure_ascii=False, sort_keys=True)
    return f"vars-{hashed(text)}"


def _assertion(result: Record) -> Judgement:
    """Return the result of an assertion, by its metric or kind."""
    assertion = mapping(result.get("assertion"))
    kind = text_of(assertion.get("type")).removeprefix("not-")
    name = text_of(assertion.get("metric")) or text_of(assertion.get("type")) or "assertion"
    if kind == "human":
        return Judgement(name, result.get("pass"), "human")
    source = "llm_judge" if _MODEL_GRADED.search(kind) else "code"
    return Judgement(name, result.get("score"), source)


_CASES = words(
    "testCases test_cases conversationalTestCases conversational_test_cases test_results"
)
_CASE = (
    rb'"(?:testCases|test_cases|test_results)"\s*:',
    rb'"(?:actualOutput|actual_output|turns)"\s*:',
)
_LONGEST_NAME = 80


@corpus_format(
    title="DeepEval test runs (JSON)",
    suffixes=(".json",),
    fits=lambda file: begins(file, b"{", *_CASE),
    label_source="metrics of the test cases",
    options={
        "agent": "agent of all runs; unknown where it is not given",
        "label": "metric whose success is the outcome; by default the success of all",
    },
)
def deepeval(files: FileSet, reading: Reading) -> Drafts:
    """Read one run for each test case; attempts are test cases with the same input."""

    def draft(record: Record, origin: Origin) -> Draft:
        case = snake(record)
        metrics = [snake(one) for one in objects(case.get("metrics_data"))]
        asked = text_of(case.get("input")) or text_of(case.get("scenario"))
        steps = _answered(text_of(case.get("actual_output")))
        if case.get("turns"):
            turns = from_first(messages_of(case["turns"]), "assistant", "tool")
            steps = steps_of_messages(turns, reading)
        task = asked or text_of(case.get("name"))
        if not task:
            raise LeftOutError("it has neither an input nor a name")
        verdicts = [Judgement(str(one.get("name")), one.get("success")) for one in metrics]
        return Draft(
            task_id=task if len(task) <= _LONGEST_NAME else f"input-{hashed(task)}",
            agent=str(reading.options.get("agent") or "unknown"),
            instruction=asked,
            steps=steps,
            **_outcome(reading, origin, case, verdicts),
            origin=origin,
            judgements=tuple(
                Judgement(
                    name, one.get("score"), "llm_judge" if one.get("evaluation_model") else ""
                )
                for one in metrics
                if (name := named(one.get("name")))
            ),
        )

    yield from reading.runs(reading.records(files, _is_case, under=_CASES), draft)


def _is_case(record: Record) -> bool:
    return not snake(record).keys().isdisjoint(("actual_output", "turns", "metrics_data"))


_SAMPLE = frozenset(words("doc_id doc arguments resps filtered_resps target"))
_OTHERS = frozenset(words("filter metrics doc_hash prompt_hash target_hash"))
_SAMPLES = re.compile(r"samples_(.+?)_\d{4}-\d{2}-\d{2}T[\d.-]+\.jsonl")
_PAIR = 2


@corpus_format(
    title="samples of lm-evaluation-harness (samples_TASK_TIME.jsonl)",
    suffixes=LINES,
    fits=lambda file: has_fields(file, _SAMPLE),
    label_source="metrics of the task",
    options={**AGENT_OPTION, "label": "metric that is the outcome, where there are several"},
)
def lm_eval(files: FileSet, reading: Reading) -> Drafts:
    """Read one run for each document; results of several filters are judgements of one run."""
    # a document has a line for each filter of its answers
    judgements: dict[tuple[str, str], list[Judgement]] = {}
    samples: dict[tuple[str, str], tuple[Origin, Record]] = {}
    for place, line in reading.records(files, lambda record: record.keys() >= _SAMPLE):
        document = place.file, str(line["doc_id"])
        samples.setdefault(document, (place, line))
        judgements.setdefault(document, []).extend(_metrics(line))

    def draft(record: Record, origin: Origin) -> Draft:
        if not is_id(record["doc_id"]):
            raise LeftOutError("its doc_id is not an id")
        path = PurePosixPath(origin.file.removesuffix(".gz"))
        match = _SAMPLES.fullmatch(path.name)
        said = judgements[origin.file, str(record["doc_id"])]
        arguments = _arguments(record["arguments"])
        return Draft(
            task_id=f"{match[1] if match else path.stem}/{record['doc_id']}",
            agent=reading.agent_in_name(origin.file, path.parent.name or "unknown", of="folder"),
            instruction=value_text(arguments[0][0]) if arguments and arguments[0] else "",
            steps=_answered(_answer(record, arguments)),
            origin=origin,
            judgements=tuple(said),
            **reading.chosen(origin, said),
        )

    yield from reading.runs(samples.values(), draft)


def _metrics(record: Record) -> Iterator[Judgement]:
    names = listed(record.get("metrics")) or [*record.keys() - _SAMPLE - _OTHERS]
    used = record.get("filter", "none")
    for name in sorted(map(str, names)):
        if isinstance(value := record.get(name), bool | int | float):
            yield Judgement(name if used == "none" else f"{name} ({used})", value, "code")


def _arguments(given: Any) -> list[list[Any]]:
    """Return prompts with their options or continuations; older versions list them."""
    if isinstance(given, dict):
        return [[*mapping(one).values()] for one in given.values()]
    return [one if isinstance(one, list) else [one] for one in listed(given)]


def _answer(record: Record, arguments: list[list[Any]]) -> str:
    """Return the answer: generated text, or the likeliest of the continuations."""
    answers = listed(record["filtered_resps"])
    if len(answers) == len(arguments) and all(len(one) == _PAIR for one in arguments):
        logs = [_number(one) for one in answers]
        if logs and None not in logs:
            best = max(range(len(logs)), key=lambda place: logs[place] or 0.0)
            return str(arguments[best][1])
    return value_text(answers[0] if answers else record["resps"])


def _number(answer: Any) -> float | None:
    try:
        return float(listed(answer)[0])
    except (IndexError, TypeError, ValueError, OverflowError):
        return None
